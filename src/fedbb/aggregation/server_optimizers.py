"""Optimizers of the server: FedAvgM (Hsu et al. 2019); FedAdam, FedYogi, FedAdagrad (Reddi 2021).

The change Δ of the parameters in a round, merged model less the model before, takes the place of a
negative gradient. Buffers stay as they were merged: a running variance that is adapted can become
negative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.records import IntArray, ModelState, RunFacts, Tensors
from fedbb.state import add_prefix, select

AdaptiveRule = Literal["adam", "yogi", "adagrad"]

FIRST, SECOND = "first.", "second."
"""Prefixes of the two moments in the state of an adaptive optimizer."""


@dataclass(frozen=True)
class ServerMomentum(ServerStep):
    """FedAvgM: b ← β·b + Δ, θ ← θ + η·b. With η = 1 and β = 0 it is FedAvg, bit for bit.

    Args:
        lr: η, the server's learning rate.
        momentum: β.
    """

    lr: float = 1.0
    momentum: float = 0.9
    name: ClassVar[str] = "server-momentum"

    def __post_init__(self) -> None:
        _check(self.lr, momentum=self.momentum)

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return a momentum of zero."""
        return {name: torch.zeros_like(tensor) for name, tensor in first.params.items()}

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Return the new momentum and the moved model."""
        if self.lr == 1.0 and self.momentum == 0.0:
            return state, turn.merged
        change = parameter_change(turn)
        after = {
            name: (self.momentum * state[name].double() + delta).to(state[name].dtype)
            for name, delta in change.items()
        }
        steps = {name: self.lr * buffer.double() for name, buffer in after.items()}
        return after, move_parameters(turn, steps)


@dataclass(frozen=True)
class AdaptiveOptimizer(ServerStep):
    """FedAdam, FedYogi or FedAdagrad: m ← β₁·m + (1 − β₁)·Δ, θ ← θ + η·m / (√v + τ).

    v ← β₂·v + (1 − β₂)·Δ² under "adam"; v ← v − (1 − β₂)·Δ²·sign(v − Δ²) under "yogi";
    v ← v + Δ² under "adagrad". Both begin at 0, and there is no correction of that bias.

    Args:
        rule: how v follows the squares of the changes.
        lr: η, the server's learning rate.
        beta1: β₁.
        beta2: β₂; it has no meaning under "adagrad".
        tau: τ, the degree of adaptivity: small changes are not amplified beyond 1/τ.
    """

    rule: AdaptiveRule = "adam"
    lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    name: ClassVar[str] = "server-optimizer"

    def __post_init__(self) -> None:
        if self.rule not in get_args(AdaptiveRule):
            allowed = ", ".join(get_args(AdaptiveRule))
            raise ValueError(f"rule must be one of {allowed}, not {self.rule!r}")
        _check(self.lr, beta1=self.beta1, beta2=self.beta2)
        if not 0.0 < self.tau < math.inf:
            raise ValueError(f"tau must be a finite number above 0, not {self.tau}")

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return moments of zero."""
        zeros = {name: torch.zeros_like(tensor) for name, tensor in first.params.items()}
        return add_prefix(FIRST, zeros) | add_prefix(SECOND, zeros)

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Return the new moments and the moved model."""
        first, second = select(state, FIRST), select(state, SECOND)
        steps: dict[str, Tensor] = {}
        for name, delta in parameter_change(turn).items():
            kind = first[name].dtype
            mean = self.beta1 * first[name].double() + (1 - self.beta1) * delta
            square = self._square(second[name].double(), delta.square())
            # Rounded before use, so that a resumed run goes on with the same numbers.
            first[name], second[name] = mean.to(kind), square.to(kind)
            root = second[name].double().sqrt()
            steps[name] = self.lr * first[name].double() / (root + self.tau)
        return add_prefix(FIRST, first) | add_prefix(SECOND, second), move_parameters(turn, steps)

    def _square(self, before: Tensor, square: Tensor) -> Tensor:
        if self.rule == "adam":
            return self.beta2 * before + (1 - self.beta2) * square
        if self.rule == "yogi":
            return before - (1 - self.beta2) * square * torch.sign(before - square)
        return before + square


def parameter_change(turn: Turn) -> dict[str, Tensor]:
    """Return the change of each parameter in a round, in float64."""
    return {
        name: turn.merged.params[name].double() - tensor.double()
        for name, tensor in turn.before.params.items()
    }


def move_parameters(turn: Turn, steps: Tensors) -> ModelState:
    """Return the model before the round moved by these steps, with the merged buffers."""
    moved = {
        name: (tensor.double() + steps[name]).to(tensor.dtype)
        for name, tensor in turn.before.params.items()
    }
    return ModelState(moved, turn.merged.buffers)


def _check(lr: float, **decays: float) -> None:
    if not 0.0 < lr < math.inf:
        raise ValueError(f"lr must be a finite number above 0, not {lr}")
    for name, value in decays.items():
        if not 0.0 <= value < 1.0:
            raise ValueError(f"{name} must be in [0, 1), not {value}")
