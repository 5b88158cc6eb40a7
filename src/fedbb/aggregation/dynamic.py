"""FedDyn at the server: the mean model is shifted by what the clients' gradients leave over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedbb.aggregation.server_optimizers import move_parameters, parameter_change
from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.records import IntArray, ModelState, RunFacts, Tensors


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
