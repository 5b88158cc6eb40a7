"""CLIMB (Shen et al. 2022): clients whose loss is above the average get a larger weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.losses.cross_entropy import PlainLoss
from fedbb.methods.record import Method
from fedbb.models.base import run_network
from fedbb.records import FloatArray, IntArray, ModelFacts, ModelState, RunFacts, Tensors
from fedbb.statistics import ClientView, Join, Statistic, form

HIGHEST = 1e4
"""A larger loss is rejected: a client must not own the model by what it reports."""


@dataclass(frozen=True)
class StartLoss(Statistic):
    """The mean plain loss over the client's samples, and their number; the server sees each.

    Args:
        every: computed in every round whose number this divides.
    """

    every: int = 1
    name: ClassVar[str] = "start-loss"
    join: ClassVar[Join] = "each"

    def shapes(self, model: ModelState, facts: ModelFacts) -> Tensors:
        """Return two single numbers."""
        return {"loss": form(dtype=torch.float64), "samples": form(dtype=torch.float64)}

    def compute(self, view: ClientView) -> Tensors:
        """Return the mean over samples of the plain loss; for labels, over known labels."""
        loss, samples, known = PlainLoss(view.facts.task, reduction="none"), 0, 0
        total = torch.zeros((), dtype=torch.float64)
        for inputs, targets in view.batches():
            total += loss(run_network(view.model, inputs).logits, targets).double().sum().cpu()
            known += int((~targets.isnan()).sum()) if targets.is_floating_point() else len(targets)
            samples += len(targets)
        number = torch.tensor(float(samples), dtype=torch.float64)
        return {"loss": total / max(known, 1), "samples": number}

    def fault(self, values: Tensors) -> str | None:
        """Refuse a loss below 0 or far above what a model can have, and no samples."""
        if not 0 <= values["loss"] <= HIGHEST:
            return f"its loss is {float(values['loss']):g}, not from 0 to {HIGHEST:g}"
        return None if values["samples"] >= 1 else "it reports a loss of no samples"


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
        reported = turn.each.get(f"{StartLoss.name}.loss", {})
        losses = {client: float(value) for client, value in reported.items()}
        shares = {
            client: float(turn.each[f"{StartLoss.name}.samples"][client]) for client in losses
        }
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


def climb(
    *,
    lr: float = LossBalance.lr,
    tolerance: float = LossBalance.tolerance,
    most: float = LossBalance.most,
    every: int = StartLoss.every,
) -> Method:
    """Larger weights for clients whose loss is above the average.

    Args:
        lr: step size of the multipliers.
        tolerance: by how much a client's loss may exceed the mean.
        most: the largest multiplier.
        every: rounds from one report of losses to the next.
    """
    return Method(
        "CLIMB",
        statistics=(StartLoss(every),),
        server=(LossBalance(lr, tolerance, most),),
    )
