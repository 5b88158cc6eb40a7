"""From labels and their clients to the counts that all figures are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.analysis.labels import Labels, Marks, number_rows
from fedbb.errors import DataError
from fedbb.records import FloatArray, IntArray, Task

MOST_CELLS = 50_000_000
MOST_TOGETHER = 512
"""Above so many classes a table of which occur together would be larger than all the rest."""


@dataclass(frozen=True, eq=False)
class Tally:
    """Cases by client and class (K, C), samples by client, and the sets of classes that occur.

    `mixes` (K, C + 1) is how each client's samples spread over the classes, the last place for
    those without any. `sets` (S, C) are the different sets, `set_sizes` their samples; multi-class
    data has only those of one class, and none is listed. `together` (C, C) counts the samples that
    are of both classes.
    """

    task: Task
    classes: tuple[str, ...]
    clients: tuple[str, ...]
    positive: FloatArray
    negative: FloatArray
    samples: IntArray
    mixes: FloatArray
    sets: Marks
    set_sizes: IntArray
    together: FloatArray | None


def tally(labels: Labels, owners: IntArray, clients: tuple[str, ...]) -> Tally:
    """Count the labels of each client; `owners` (N,) numbers the client of each sample."""
    if len(clients) * len(labels.classes) > MOST_CELLS:
        raise DataError(
            f"{len(clients)} clients × {len(labels.classes)} classes are more than the "
            f"{MOST_CELLS:,} counts an inspection holds; divide by a coarser column"
        )
    samples = np.bincount(owners, minlength=len(clients)).astype(np.int64)
    count = _count_classes if labels.task is Task.MULTICLASS else _count_patterns
    return count(labels, owners, clients, samples)


def name_clients(values: npt.ArrayLike) -> tuple[tuple[str, ...], IntArray]:
    """Return the names of the clients, whole numbers in their own order, and each sample's."""
    names, numbers = np.unique(np.asarray(values).astype(str), return_inverse=True)
    order = natural_order(names.tolist())
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return tuple(str(names[number]) for number in order), place[numbers.reshape(-1)]


def natural_order(names: Sequence[str]) -> list[int]:
    """Return the places of names in order, by number if all are whole numbers."""
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(range(len(names)), key=lambda place: (int(names[place]), names[place]))
    return sorted(range(len(names)), key=lambda place: names[place])


def _count_classes(
    labels: Labels, owners: IntArray, clients: tuple[str, ...], samples: IntArray
) -> Tally:
    shape = (len(clients), len(labels.classes))
    cells = np.bincount(owners * shape[1] + labels.pattern, minlength=shape[0] * shape[1])
    positive = cells.reshape(shape).astype(np.float64)
    spread = positive / np.maximum(samples, 1)[:, None]
    return Tally(
        labels.task,
        labels.classes,
        clients,
        positive,
        samples[:, None] - positive,
        samples,
        mixes=np.column_stack([spread, np.zeros(shape[0])]),
        sets=labels.patterns,
        set_sizes=np.zeros(0, dtype=np.int64),
        together=None,
    )


def _count_patterns(
    labels: Labels, owners: IntArray, clients: tuple[str, ...], samples: IntArray
) -> Tally:
    has = labels.patterns == 1
    pairs, counts = np.unique(owners * len(has) + labels.pattern, return_counts=True)
    holder, pattern = np.divmod(pairs, len(has))

    def spread(values: npt.NDArray[Any]) -> FloatArray:
        """Sum values (S, …) of the patterns over the samples of each client."""
        parts = [
            np.bincount(holder, weights=counts * column[pattern], minlength=len(clients))
            for column in values.T
        ]
        return np.stack(parts, axis=1)

    number = has.sum(axis=1, keepdims=True)
    mix = np.concatenate([has / np.maximum(number, 1), number == 0], axis=1)
    sizes = np.bincount(labels.pattern, minlength=len(has)).astype(np.int64)
    sets, set_sizes = _merge_sets(has, sizes)
    return Tally(
        labels.task,
        labels.classes,
        clients,
        spread(has),
        spread(labels.patterns == 0),
        samples,
        mixes=spread(mix) / np.maximum(samples, 1)[:, None],
        sets=sets,
        set_sizes=set_sizes,
        together=_together(has, sizes),
    )


def _merge_sets(has: npt.NDArray[np.bool_], sizes: IntArray) -> tuple[Marks, IntArray]:
    """Return the different sets of positive classes and their samples, the largest first."""
    marks = has.astype(np.int8)
    numbers, first = number_rows(marks)
    merged = np.bincount(numbers, weights=sizes).astype(np.int64)
    held = np.flatnonzero(merged)
    order = held[np.argsort(-merged[held], kind="stable")]
    return marks[first[order]], merged[order]


def _together(has: npt.NDArray[np.bool_], sizes: IntArray) -> FloatArray | None:
    if has.shape[1] > MOST_TOGETHER:
        return None
    values = has.astype(np.float64)
    return np.asarray((values * sizes[:, None]).T @ values)
