"""Natural clients: by site, patient, or another column of the data."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from fedbb.errors import DataError
from fedbb.records import IntArray
from fedbb.rng import stream


def by_value(values: npt.NDArray[np.str_]) -> IntArray:
    """Return the client of each sample: each value of the column is one client, in sorted order."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def assign_groups(values: npt.NDArray[np.str_], clients: int, seed: int) -> IntArray:
    """Return the client of each sample; whole groups go to `clients` clients of balanced sizes.

    A group is all samples of one value. The largest remaining group goes to the smallest client;
    groups of equal size are taken in a random order.
    """
    groups = by_value(values)
    sizes = np.bincount(groups)
    if not 1 <= clients <= len(sizes):
        raise DataError(
            f"clients is {clients}; the column has {len(sizes)} different values, and each client "
            "needs at least one"
        )
    order = stream(seed, "partition", "column").permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    heap = [(0, client) for client in range(clients)]
    owner_of = np.empty(len(sizes), dtype=np.int64)
    for group in order:
        held, client = heap[0]
        owner_of[group] = client
        heapq.heapreplace(heap, (held + int(sizes[group]), client))
    return np.asarray(owner_of[groups])
