"""The weight of each client: by its size (FedAvg) or by how balanced its labels are (CBR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedbb.imbalance.clients import READINGS, Reading, balance_weights, check_balance, dispersion
from fedbb.records import ClientInfo, FloatArray, LabelCounts


class Weighting(Protocol):
    """The third slot of a method."""

    def measure(self, counts: LabelCounts) -> float | None:
        """Return, at the client, the one number the server needs of these counts, if any."""
        ...

    def __call__(self, infos: Sequence[ClientInfo]) -> FloatArray:
        """Return, at the server, the weight of each client; they sum to one."""
        ...


@dataclass(frozen=True)
class BySamples:
    """Weights in proportion to the number of samples (FedAvg)."""

    def measure(self, counts: LabelCounts) -> None:
        """Ask for nothing but the size."""
        return

    def __call__(self, infos: Sequence[ClientInfo]) -> FloatArray:
        """Return n_k / Σn."""
        samples = [info.samples for info in infos]
        return balance_weights(np.zeros(len(samples)), samples, gamma=0.0)


@dataclass(frozen=True)
class ClientBalanced:
    """Client Balanced Reweighting: the more balanced its labels, the larger its weight (Eq. 12).

    Args:
        gamma: how far the weights follow the balance, from 0 (FedAvg's weights) to 1.
        reading: which formula of R is used (docs/paper-notes.md).
        floor: the smallest R; a perfectly balanced client would have infinite weight without it.
    """

    gamma: float = 1.0
    reading: Reading = "share-std"
    floor: float = 1e-3

    def __post_init__(self) -> None:
        check_balance(self.gamma, self.floor)
        if self.reading not in READINGS:
            allowed = ", ".join(READINGS)
            raise ValueError(f"reading must be one of {allowed}, not {self.reading!r}")

    def measure(self, counts: LabelCounts) -> float:
        """Return R of these counts; a class of which no label is known has no p(y) to compare."""
        known = counts.positive + counts.negative
        seen = known > 0
        return float(dispersion(counts.positive[seen], known[seen], reading=self.reading))

    def __call__(self, infos: Sequence[ClientInfo]) -> FloatArray:
        """Return W of Eq. 12."""
        spread = [np.nan if info.dispersion is None else info.dispersion for info in infos]
        samples = [info.samples for info in infos]
        return balance_weights(spread, samples, gamma=self.gamma, floor=self.floor)
