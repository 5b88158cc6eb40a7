"""CLIMB (Shen et al. 2022): clients whose loss is above the average get a larger weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.records import FloatArray, IntArray, ModelState, RunFacts, Tensors

LOSSES, SAMPLES = "start-loss.loss", "start-loss.samples"
"""The statistics that the step reads."""


@dataclass(frozen=True)
class LossBalance(ServerStep):
    """Multipliers λ of the constraints that no client's loss exceeds the mean by a tolerance.

    A client's weight is its base weight times 1 + λ − mean λ, at least 0.

    Args:
        lr: step size of λ, divided by the number of clients.
        tolerance: by how much a loss may exceed the mean.
        most: the largest λ.

    Raises:
        ValueError: a value outside of its range.
    """

    lr: float = 2.0
    tolerance: float = 0.01
    most: float = 5.0
    name: ClassVar[str] = "climb"

    def __post_init__(self) -> None:
        for name in ("lr", "tolerance", "most"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} must be a finite number of at least 0, not {getattr(self, name)}"
                )

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return λ of every client, which is 0."""
        return {"multipliers": torch.zeros(facts.clients, dtype=torch.float64)}

    def weigh(self, state: Tensors, weights: FloatArray) -> FloatArray:
        """Return the weights by the multipliers of the rounds before."""
        return balance_weights(weights, state["multipliers"].numpy())

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Move the multipliers of the clients that reported a loss."""
        reported = turn.each.get(LOSSES, {})
        losses = {client: float(value) for client, value in reported.items()}
        shares = {client: float(turn.each[SAMPLES][client]) for client in losses}
        moved = move_multipliers(state["multipliers"].numpy(), losses, shares, self)
        return {"multipliers": torch.from_numpy(moved)}, turn.merged


def balance_weights(weights: FloatArray, multipliers: FloatArray) -> FloatArray:
    """Return p·max(0, 1 + λ − Σ p·λ); the weights as they are if all of that is 0.

    >>> balance_weights(np.full(3, 1 / 3), np.array([0.0, 0.0, 0.4])).round(4)
    array([0.2889, 0.2889, 0.4222])
    """
    if not multipliers.any():
        return weights  # the same bits as without the step
    mean = weights @ multipliers / weights.sum()
    balanced = weights * np.maximum(1 + multipliers - mean, 0.0)
    return balanced if balanced.any() else weights


def move_multipliers(
    multipliers: FloatArray,
    losses: Mapping[int, float],
    shares: Mapping[int, float],
    spec: LossBalance,
) -> FloatArray:
    """Return λ after a step of dual ascent; clients without a loss keep theirs.

    Args:
        multipliers: λ of every client.
        losses: the loss of each client that reported one.
        shares: how much each of them counts in the mean loss.
        spec: the hyper-parameters.
    """
    moved = multipliers.copy()
    if not losses:
        return moved
    total = math.fsum(shares[client] for client in losses)
    mean = math.fsum(shares[client] * loss for client, loss in losses.items()) / total
    for client, loss in losses.items():
        step = spec.lr / len(multipliers) * (loss - mean - spec.tolerance)
        moved[client] = min(max(moved[client] + step, 0.0), spec.most)
    return moved
