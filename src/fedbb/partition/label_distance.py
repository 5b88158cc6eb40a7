"""Label skew: how far the clients' label distributions are from that of all samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.imbalance import sum_by_group
from fedbb.records import FloatArray, IntArray


def measure_skew(labels: npt.NDArray[Any], clients: Sequence[IntArray]) -> float:
    """Return the mean total variation distance of the clients from all samples, in [0, 1).

    Clients count by their sizes: the result is the share of samples that would need other labels
    for all clients to be alike. Clients drawn at random are not exactly at 0, and the smaller they
    are, the farther from it.

    Args:
        labels: class numbers (N,), or rows (N, C) of 0, 1 and NaN.
        clients: the places of each client's samples.

    >>> measure_skew(np.array([0, 0, 1, 1]), [np.array([0, 1]), np.array([2, 3])])
    0.5
    """
    sizes = np.array([len(places) for places in clients], dtype=np.float64)
    rows = _rows(labels)[np.concatenate(clients)]
    owner = np.repeat(np.arange(len(clients)), [len(places) for places in clients])
    mass = class_mass(rows, owner, len(clients))
    distances = total_variation(mass / sizes[:, np.newaxis], mass.sum(axis=0) / sizes.sum())
    return float(np.dot(distances, sizes) / sizes.sum())


def total_variation(shares: FloatArray, whole: FloatArray) -> FloatArray:
    """Return ½ Σ|p_k − p| of each client's label shares (K, C) and those of the whole (C,)."""
    return np.asarray(np.abs(shares - whole).sum(axis=1) / 2)


def class_mass(
    has: npt.NDArray[np.bool_],
    groups: IntArray,
    number: int,
    *,
    rows: IntArray | None = None,
    times: npt.NDArray[Any] | None = None,
) -> FloatArray:
    """Return how many samples of each class the groups have, (number, C + 1).

    A sample of several classes counts in equal parts for each; the last column is for samples
    without a class. The arguments are those of `sum_by_group`, `has` being its values.
    """
    classes = has.sum(axis=1) if rows is None else has.sum(axis=1)[rows]
    weight = np.ones(len(groups)) if times is None else times
    parts = weight / np.maximum(classes, 1)
    without = np.bincount(groups, weights=weight * (classes == 0), minlength=number)
    return np.column_stack([sum_by_group(has, groups, number, rows=rows, times=parts), without])


def _rows(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which classes each sample has, (N, C); an unknown label is none."""
    if labels.ndim == 2:
        return np.asarray(labels == 1)
    return np.asarray(labels[:, None] == np.arange(int(labels.max()) + 1))
