"""MOON: a contrastive penalty between the global and the previous local model (Li et al. 2021)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbb.models.base import Outputs, run_network
from fedbb.penalties.base import Anchors, Needs, Step
from fedbb.penalties.proximal import check_strength
from fedbb.records import ModelState
from fedbb.state import restore


@dataclass(frozen=True)
class Contrastive:
    """μ times the contrastive loss of the projected features z; zero in a client's first round.

    Features are pulled towards the global model's and pushed away from those of the client's own
    previous model.

    Args:
        mu: the strength of the penalty.
        temperature: the temperature of the similarities.
    """

    mu: float = 1.0
    temperature: float = 0.5
    needs: ClassVar[Needs] = Needs(models=2, forwards=2, projection=True, client_state=True)

    def __post_init__(self) -> None:
        check_strength("mu", self.mu)
        if not 0.0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number above 0, not {self.temperature}")

    def bind(self, anchors: Anchors) -> Callable[[Step], Tensor]:
        """Return the contrast between the round's global model and the client's previous one."""
        if anchors.previous is None:
            return _nothing
        globally = _frozen(anchors.model, anchors.start)
        previously = _frozen(anchors.model, anchors.previous)

        def penalty(step: Step) -> Tensor:
            with torch.no_grad():
                near = _embedding(run_network(globally, step.images, embed=True))
                far = _embedding(run_network(previously, step.images, embed=True))
            return self.mu * contrast(_embedding(step.outputs), near, far, self.temperature)

        return penalty


def contrast(embedding: Tensor, near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """Return the mean of −log(e^{s⁺/t} / (e^{s⁺/t} + e^{s⁻/t})), s the cosines with the two."""
    similar = torch.stack(
        [F.cosine_similarity(embedding, other, dim=1, eps=1e-8) for other in (near, far)], dim=1
    )
    return -F.log_softmax(similar / temperature, dim=1)[:, 0].mean()


def _frozen(model: nn.Module, state: ModelState) -> nn.Module:
    """A copy that is never trained; in eval mode, so that its batch norms do not drift."""
    twin = copy.deepcopy(model)
    restore(twin, state)
    return twin.eval().requires_grad_(False)


def _embedding(outputs: Outputs) -> Tensor:
    assert outputs.embedding is not None  # asked for by `needs.projection`
    return outputs.embedding


def _nothing(step: Step) -> Tensor:
    return step.outputs.logits.new_zeros(())
