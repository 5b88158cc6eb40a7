"""FedDyn (Acar et al. 2021): dynamic regularization at the client, a shift at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedbb.aggregation.robust import Uniform
from fedbb.aggregation.server_optimizers import move_parameters, parameter_change
from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.methods.record import Method
from fedbb.penalties.base import Anchors, BoundPenalty, LocalResult, Needs, Step
from fedbb.records import IntArray, ModelState, RunFacts, Tensors


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


@dataclass(frozen=True)
class DynamicShift(ServerStep):
    """h ← h − (α/K)·Σ(θ_k − θ) over the clients of the round; then θ ← mean of θ_k − h/α.

    K is the number of all clients. The sum follows from the merged model, which is the mean of the
    clients' under equal weights.

    Args:
        alpha: the strength of the clients' penalty.
    """

    alpha: float = 0.01
    name: ClassVar[str] = "feddyn"

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < float("inf"):
            raise ValueError(f"alpha must be a finite number above 0, not {self.alpha}")

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return h of zero."""
        return {name: torch.zeros_like(tensor) for name, tensor in first.params.items()}

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Return the new h and the shifted model."""
        share = len(turn.clients) / turn.facts.clients
        change = parameter_change(turn)
        after = {
            name: (state[name].double() - self.alpha * share * delta).to(state[name].dtype)
            for name, delta in change.items()
        }
        steps = {name: delta - after[name].double() / self.alpha for name, delta in change.items()}
        return after, move_parameters(turn, steps)


def feddyn(
    *,
    alpha: float = DynamicRegularizer.alpha,
    clip: float | None = DynamicRegularizer.clip,
) -> Method:
    """Dynamic regularization; all clients count alike.

    Args:
        alpha: strength of the penalty.
        clip: largest norm of the gradient; None for no clipping.
    """
    return Method(
        "FedDyn",
        penalties=(DynamicRegularizer(alpha, clip),),
        weighting=Uniform(),
        server=(DynamicShift(alpha),),
    )
