"""The label counts of the whole federation, of which the server learns the sum only (FedIR)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fedbb.aggregation.server_step import ServerStep
from fedbb.records import IntArray, LabelCounts, ModelState, RunFacts, Tensors


@dataclass(frozen=True)
class FederationCounts(ServerStep):
    """Sums the label counts of all clients once, and broadcasts the sum."""

    name: ClassVar[str] = "label-counts"

    def measure(self, counts: LabelCounts) -> IntArray:
        """Return the cases for and against each class, (2, C)."""
        return np.stack((counts.positive, counts.negative)).astype(np.int64)

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return the sum over all clients."""
        assert measured is not None
        return {"cases": torch.from_numpy(measured.astype(np.int64))}

    def broadcast(self, state: Tensors, number: int) -> Tensors:
        """Return the sum, from which clients compute their weights."""
        return state
