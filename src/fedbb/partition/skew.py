"""How far a partition's clients are from having the labels of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.records import FloatArray, IntArray


def measure_skew(labels: npt.NDArray[Any], clients: Sequence[IntArray]) -> float:
    """Return the mean distance of the clients' label mixes from that of all samples, in [0, 1).

    The distance is that of total variation, ½ Σ|p_k − p|, and clients count by their sizes: it is
    the share of samples that would need other labels for all clients to be alike. Clients drawn
    at random are not quite at 0, the less so the smaller they are.

    >>> measure_skew(np.array([0, 0, 1, 1]), [np.array([0, 1]), np.array([2, 3])])
    0.5
    """
    rows = _rows(labels)
    sizes = np.array([len(places) for places in clients], dtype=np.float64)
    mass = _masses(rows, clients)
    distances = np.abs(mass / sizes[:, np.newaxis] - mass.sum(axis=0) / sizes.sum()).sum(axis=1) / 2
    return float(np.dot(distances, sizes) / sizes.sum())


def _masses(rows: npt.NDArray[np.bool_], clients: Sequence[IntArray]) -> FloatArray:
    """Return how many samples each client has of each class, (K, C + 1), one of two for half each.

    The last place is for samples without any class.
    """
    rows = rows[np.concatenate(clients)]
    owner = np.repeat(np.arange(len(clients)), [len(places) for places in clients])
    number = rows.sum(axis=1)
    parts = 1.0 / np.maximum(number, 1)
    columns = [*(parts * column for column in rows.T), number == 0]
    added = [np.bincount(owner, column, minlength=len(clients)) for column in columns]
    return np.stack(added, axis=1)


def _rows(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which classes each sample has, (N, C); an unknown label is none."""
    if labels.ndim == 2:
        return np.asarray(labels == 1)
    return np.asarray(labels[:, None] == np.arange(int(labels.max()) + 1))
