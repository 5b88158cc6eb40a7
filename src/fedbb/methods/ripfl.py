"""RIPFL, a reconstruction: Qin et al. (2023) published neither their formulas nor their code.

Known is that clients are selected by their reliability, that each uses another amount of the shared
information, and that personal and shared information are joined by evidence theory. Loss, figure,
drawing, division and discount below are ours, made of evidential learning (Sensoy et al. 2018) and
Dempster's rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.losses.base import Loss
from fedbb.losses.evidential import Evidential, opinion
from fedbb.methods.record import Method
from fedbb.models.base import run_network
from fedbb.personal import OwnLoss, OwnModel
from fedbb.records import FloatArray, IntArray, ModelFacts, ModelState, RunFacts, Task, Tensors
from fedbb.statistics import ClientView, Join, Moment, Statistic, form

WARMUP = 10
"""Rounds over which the penalty on wrong evidence rises to its full strength."""

DISCOUNT = ":discount"
"""What a client keeps beside its model: how far it trusts the shared one."""


@dataclass(frozen=True)
class RisingEvidential(Evidential):
    """The evidential loss whose penalty on wrong evidence rises over the first rounds."""

    def receive(self, broadcast: Tensors) -> Loss:
        """Return the loss of a round."""
        return Evidential(self.kl * float(broadcast[f"{ReliableClients.name}.rise"]))


@dataclass(frozen=True)
class Reliability(Statistic):
    """The mean belief of the trained model in the true class of the client's samples."""

    name: ClassVar[str] = "reliability"
    moment: ClassVar[Moment] = "end"
    join: ClassVar[Join] = "each"

    def shapes(self, model: ModelState, facts: ModelFacts) -> Tensors:
        """Return a single number."""
        return {"belief": form(dtype=torch.float64)}

    def compute(self, view: ClientView) -> Tensors:
        """Return the mean over the client's samples."""
        total, number = torch.zeros((), dtype=torch.float64), 0
        for inputs, targets in view.batches():
            _, beliefs, _ = opinion(run_network(view.model, inputs).logits.double())
            total += beliefs.gather(1, targets.long().unsqueeze(1)).sum().cpu()
            number += len(targets)
        return {"belief": total / max(number, 1)}

    def fault(self, values: Tensors) -> str | None:
        """Refuse what is not a mean of beliefs."""
        belief = float(values["belief"])
        return None if 0 <= belief < 1 else f"its belief is {belief:g}, not from 0 to below 1"


@dataclass(frozen=True)
class ReliableClients(ServerStep):
    """Draws clients by their last figure of reliability, and merges the better half.

    Args:
        least: the smallest weight of a client in the draw.

    Raises:
        ValueError: it is not above 0 and at most 1.
    """

    least: float = 0.05
    name: ClassVar[str] = "ripfl"

    def __post_init__(self) -> None:
        if not 0.0 < self.least <= 1.0:
            raise ValueError(f"least must be above 0 and at most 1, not {self.least}")

    def supports(self, task: Task) -> bool:
        """Return whether a sample has one class."""
        return task is Task.MULTICLASS

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return the figure of every client, which is 1 until it was asked."""
        return {"reliability": torch.ones(facts.clients, dtype=torch.float64)}

    def broadcast(self, state: Tensors, number: int) -> Tensors:
        """Return how far the penalty on wrong evidence has risen."""
        return {"rise": torch.tensor(min(1.0, number / WARMUP), dtype=torch.float64)}

    def shares(self, state: Tensors) -> FloatArray:
        """Return the probability of each client in a draw."""
        weights = np.maximum(state["reliability"].numpy(), self.least)
        return np.asarray(weights / weights.sum())

    def weigh_present(self, state: Tensors, clients: IntArray, weights: FloatArray) -> FloatArray:
        """Return the weights without the clients below the median of those that replied."""
        return divide(weights, state["reliability"].numpy()[clients])

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Take note of the figures of the clients that counted."""
        known = state["reliability"].clone()
        for client, belief in turn.each.get(f"{Reliability.name}.belief", {}).items():
            known[client] = belief
        return {"reliability": known}, turn.merged


def divide(weights: FloatArray, reliability: FloatArray) -> FloatArray:
    """Return the weights, 0 for those whose reliability is below the median.

    >>> divide(np.array([1.0, 1.0, 2.0]), np.array([0.2, 0.5, 0.9]))
    array([0., 1., 2.])
    """
    kept = np.where(reliability >= np.median(reliability), weights, 0.0)
    return kept if kept.any() else weights


@dataclass(frozen=True)
class FusedModel(OwnModel):
    """A second model of the client's own, whose opinion is joined with the shared model's.

    The shared opinion is discounted by the share of the client's samples that the model it received
    classifies rightly. Samples that the client trains on serve for that.
    """

    lam: float = 0.0
    own_loss: OwnLoss = "method"

    def received(
        self, network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]
    ) -> dict[str, Tensor]:
        """Return how far the client trusts the model that it received."""
        right, number = 0, 0
        for inputs, targets in batches:
            right += int((run_network(network, inputs).logits.argmax(dim=1) == targets).sum())
            number += len(targets)
        return {DISCOUNT: torch.tensor(right / max(number, 1), dtype=torch.float64)}

    def fuse(self, own: FloatArray, shared: FloatArray, kept: Tensors) -> FloatArray:
        """Return logits of the two opinions together; without a discount the shared one is out."""
        trust = float(kept[DISCOUNT]) if DISCOUNT in kept else 0.0
        (_, b1, u1), (_, b2, u2) = (opinion(torch.from_numpy(z)) for z in (own, shared))
        belief, unknown = fuse_opinions((b1, u1), discount((b2, u2), trust))
        chances = belief + unknown.unsqueeze(1) / belief.shape[1]
        return np.asarray(chances.log().numpy())


Opinion = tuple[Tensor, Tensor]
"""Beliefs (N, C) and uncertainty (N,), which sum to one for each sample."""


def discount(one: Opinion, trust: float) -> Opinion:
    """Return an opinion of which only a part is trusted: the rest becomes uncertainty."""
    belief, unknown = one
    return trust * belief, 1 - trust * (1 - unknown)


def fuse_opinions(one: Opinion, two: Opinion) -> Opinion:
    """Return two opinions together, by the reduced Dempster rule."""
    (b1, u1), (b2, u2) = one, two
    agreed = b1 * b2
    conflict = b1.sum(dim=1) * b2.sum(dim=1) - agreed.sum(dim=1)
    scale = (1 - conflict).unsqueeze(1)
    belief = (agreed + b1 * u2.unsqueeze(1) + b2 * u1.unsqueeze(1)) / scale
    return belief, u1 * u2 / scale.squeeze(1)


def ripfl(
    *,
    lam: float = FusedModel.lam,
    own_epochs: int | None = FusedModel.own_epochs,
    kl: float = Evidential.kl,
    least: float = ReliableClients.least,
) -> Method:
    """Reconstruction: reliable clients; own and shared evidence.

    Args:
        lam: pull of the own model towards the shared one.
        own_epochs: epochs of the own model in a round; None for those of the settings.
        kl: factor on the evidence for wrong classes, reached after ten rounds.
        least: the smallest weight of a client in the draw.
    """
    return Method(
        "RIPFL (reconstruction)",
        loss=RisingEvidential(kl),
        personal=FusedModel(lam, own_epochs),
        statistics=(Reliability(),),
        server=(ReliableClients(least),),
    )
