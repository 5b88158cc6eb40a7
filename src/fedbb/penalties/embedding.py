"""Penalties on the embedding: contrastive (MOON) and decorrelation (FedDecorr)."""

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

    Raises:
        ValueError: a value is out of range.
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


EPSILON = 1e-8
"""Added to a variance before the root, as in the authors' code."""


@dataclass(frozen=True)
class Decorrelation:
    """β times the squared correlations between the dimensions of the batch's embeddings.

    Args:
        beta: the strength of the penalty.
    """

    beta: float = 0.1
    needs: ClassVar[Needs] = Needs(embedding=True)

    def __post_init__(self) -> None:
        check_strength("beta", self.beta)

    def bind(self, anchors: Anchors) -> Callable[[Step], Tensor]:
        """Return the penalty, which depends on the batch alone."""

        def penalty(step: Step) -> Tensor:
            assert step.outputs.embedding is not None  # asked for by `needs.embedding`
            return self.beta * squared_correlations(step.outputs.embedding)

        return penalty


def squared_correlations(embeddings: Tensor) -> Tensor:
    """Return 1/N times the mean of the squared off-diagonals of ZᵀZ, Z the standardized (N, D).

    It is about N times the mean squared correlation: the authors' code divides by N once, and their
    β belongs to that. Zero for a batch of one sample, whose variance is not defined.
    """
    number, width = embeddings.shape
    if number == 1 or width == 1:
        return embeddings.sum() * 0.0
    centred = embeddings - embeddings.mean(dim=0)
    standardized = centred / (EPSILON + centred.var(dim=0)).sqrt()
    products = standardized.T @ standardized
    off = products.square().sum() - products.diagonal().square().sum()
    return off / (width * (width - 1) * number)
