"""Krum: whom to trust is who has the nearest others nearby (Blanchard et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedbb.aggregation.robust.coordinatewise import blocks, float_entries
from fedbb.records import FloatArray, IntArray, ModelState


@dataclass(frozen=True)
class Krum:
    """Keeps the best of n clients of whom at most f lie, or the n − f best if `many` (multi-Krum).

    With f = 0 multi-Krum keeps everybody.
    """

    byzantine: int
    many: bool = False

    @property
    def name(self) -> str:
        """The rule as a recipe names it."""
        return "multi-krum" if self.many else "krum"

    @property
    def least(self) -> int:
        """With how many clients its promise holds."""
        return 2 * self.byzantine + 3

    def __call__(self, scores: FloatArray) -> IntArray:
        """Return the places of those that are kept, in rising order; of equals the first."""
        number = len(scores) - self.byzantine if self.many else 1
        return np.sort(np.argsort(scores, kind="stable")[:number])


def krum_scores(distances: FloatArray, byzantine: int) -> FloatArray:
    """Return each client's Σ of squared distances (n, n) to its n − f − 2 nearest others.

    >>> apart = np.subtract.outer([0.0, 1.0, 9.0], [0.0, 1.0, 9.0]) ** 2
    >>> krum_scores(apart, byzantine=0)
    array([ 1.,  1., 64.])
    """
    number = len(distances)
    if number < 2 * byzantine + 3:
        raise ValueError(f"{number} clients are too few to tell {byzantine} liars from the rest")
    others = distances[~np.eye(number, dtype=bool)].reshape(number, number - 1)
    # Summed from the nearest on, so that the order of clients changes no bit.
    return np.asarray(np.sort(others, axis=1)[:, : number - byzantine - 2].sum(axis=1))


def squared_distances(states: Sequence[ModelState]) -> FloatArray:
    """Return ‖θ_i − θ_j‖² (n, n) over parameters and float buffers, in float64."""
    total = torch.zeros(len(states), len(states), dtype=torch.float64)
    for tensors in float_entries(states):
        for values in blocks(tensors):
            # By differences: the quicker way by products loses what near models differ in.
            apart = torch.cdist(values, values, compute_mode="donot_use_mm_for_euclid_dist")
            total += apart.square()
    return np.asarray(total.numpy())
