"""SCAFFOLD's statistic: how a client's control variate changed in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedbb.records import ModelFacts, ModelState, Tensors
from fedbb.state import select
from fedbb.statistics.base import ClientView, Moment, Statistic


@dataclass(frozen=True)
class ControlChange(Statistic):
    """c_k after the round less c_k before it, for every parameter."""

    name: ClassVar[str] = "scaffold"
    moment: ClassVar[Moment] = "end"

    def shapes(self, model: ModelState, facts: ModelFacts) -> Tensors:
        """Return one tensor for each parameter."""
        return model.params

    def compute(self, view: ClientView) -> Tensors:
        """Return the change; a client that has no control variate yet begins at zero."""
        before, after = (select(kept, f"{self.name}.") for kept in (view.before, view.after))
        return {
            name: control - before.get(name, torch.zeros_like(control))
            for name, control in after.items()
        }
