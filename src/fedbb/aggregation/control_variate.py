"""SCAFFOLD at the server: its control variate follows those of the clients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedbb.aggregation.server_optimizers import move_parameters, parameter_change
from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.records import IntArray, ModelState, RunFacts, Tensors


@dataclass(frozen=True)
class ServerControl(ServerStep):
    """c ← c + (1/K)·Σ(c_k' − c_k) over the clients of the round, K the number of all clients.

    Args:
        lr: the server's learning rate, a factor on the model's change; 1 takes the merged model.
    """

    lr: float = 1.0
    name: ClassVar[str] = "scaffold"

    def __post_init__(self) -> None:
        if not 0.0 < self.lr < math.inf:
            raise ValueError(f"lr must be a finite number above 0, not {self.lr}")

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return a control variate of zero."""
        return {name: torch.zeros_like(tensor) for name, tensor in first.params.items()}

    def broadcast(self, state: Tensors, number: int) -> Tensors:
        """Return the control variate."""
        return state

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Return the new control variate and the moved model."""
        after = {
            name: (control.double() + turn.sums[f"{self.name}.{name}"] / turn.facts.clients).to(
                control.dtype
            )
            for name, control in state.items()
        }
        if self.lr == 1.0:
            return after, turn.merged
        steps = {name: self.lr * delta for name, delta in parameter_change(turn).items()}
        return after, move_parameters(turn, steps)
