"""FedDyn at the client: dynamic regularization (Acar et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedbb.penalties.base import Anchors, BoundPenalty, LocalResult, Needs, Step
from fedbb.records import Tensors


@dataclass(frozen=True)
class DynamicRegularizer:
    """−⟨g_k, θ − θ_global⟩ + (α/2)·‖θ − θ_global‖², and g_k ← g_k − α·(θ_k − θ_global) afterwards.

    g_k begins at zero. Where the training ends in a stationary point, the new g_k is the gradient
    of the client's own loss there. The constant θ_global changes no gradient.

    Args:
        alpha: the strength of the penalty.
        clip: the largest norm of the whole gradient; None: no clipping.
    """

    alpha: float = 0.01
    clip: float | None = 10.0

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < float("inf"):
            raise ValueError(f"alpha must be a finite number above 0, not {self.alpha}")
        if self.clip is not None and not 0.0 < self.clip < float("inf"):
            raise ValueError(f"clip must be a finite number above 0, not {self.clip}")

    @property
    def needs(self) -> Needs:
        """The global model, g_k, and gradient clipping."""
        return Needs(models=2, keeps="feddyn", clip=self.clip)

    def bind(self, anchors: Anchors) -> BoundPenalty:
        """Return the penalty of this round."""
        start = anchors.start.params
        own = anchors.kept or {name: torch.zeros_like(tensor) for name, tensor in start.items()}
        parts = [
            (parameter, start[name].to(parameter.device), own[name].to(parameter.device))
            for name, parameter in anchors.model.named_parameters()
            if parameter.requires_grad
        ]

        def value(step: Step) -> Tensor:
            terms = []
            for parameter, at, gradient in parts:
                moved = parameter - at
                terms.append((moved.square() * (self.alpha / 2) - gradient * moved).sum())
            return torch.stack(terms).sum()

        def keep(result: LocalResult) -> Tensors:
            return {
                name: (
                    own[name].double()
                    - self.alpha * (result.trained.params[name].double() - tensor.double())
                ).to(tensor.dtype)
                for name, tensor in sorted(start.items())
            }

        return BoundPenalty(value, keep=keep)
