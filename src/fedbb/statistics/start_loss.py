"""The mean loss of the model that a round starts from, on the client's own samples (CLIMB)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedbb.losses.cross_entropy import PlainLoss
from fedbb.models.base import run_network
from fedbb.records import ModelFacts, ModelState, Tensors
from fedbb.statistics.base import ClientView, Join, Statistic, form

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
