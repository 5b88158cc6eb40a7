"""The middle of the clients' values at every coordinate (Yin et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedbb.aggregation.robust.coordinatewise import join_coordinates
from fedbb.aggregation.weighting import renormalize
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, LabelCounts, ModelState


def coordinate_median(
    current: ModelState, updates: Iterable[ClientUpdate], weights: FloatArray
) -> ModelState:
    """Return the median of each coordinate; with fewer than half liars it lies between honest ones.

    Clients count alike whatever their weights: a median of weights could be owned by a liar who
    declares a large one.
    """
    # By client and stable, so that not even the sign of a zero depends on who came first.
    ordered = sorted(updates, key=lambda update: update.client)
    return join_coordinates([update.state for update in ordered], middle)


def middle(values: Tensor) -> Tensor:
    """Return the median of each column, the mean of the middle two if their number is even."""
    ordered = values.sort(dim=0, stable=True).values
    number = len(values)
    return (ordered[(number - 1) // 2] + ordered[number // 2]) / 2


@dataclass(frozen=True)
class Uniform:
    """Every client that has samples counts the same, which is how a median takes them."""

    def measure(self, counts: LabelCounts) -> None:
        """Ask for nothing."""
        return

    def __call__(self, infos: Sequence[ClientInfo]) -> FloatArray:
        """Return one over the number of clients that have samples, 0 for the others."""
        return renormalize(np.array([info.samples > 0 for info in infos], dtype=np.float64))
