"""Counting the positive and negative cases of each class (A and B of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.records import FloatArray, IntArray, LabelCounts, Task


def count_labels(labels: npt.ArrayLike, task: Task | str, classes: int) -> LabelCounts:
    """Return how many cases of each class these labels hold.

    Multi-class labels are (N,) integers; multi-label ones (N, C) of 0, 1 and NaN for an unknown
    label, which counts as neither.

    >>> count_labels([0, 0, 2], "multiclass", classes=3).negative
    array([1., 3., 2.])
    """
    array = np.asarray(labels)
    if Task(task) is Task.MULTICLASS:
        positive = np.bincount(_whole(array, classes), minlength=classes).astype(np.float64)
        negative = len(array) - positive
    else:
        positive, negative = (
            cases.sum(axis=0).astype(np.float64) for cases in _entries(array, classes)
        )
    return LabelCounts(positive, negative, samples=len(array))


def count_groups(
    labels: npt.ArrayLike, groups: Sequence[IntArray], task: Task | str, classes: int
) -> list[LabelCounts]:
    """Return the counts of many groups of rows at once, as `count_labels` of each would be.

    A hundred thousand groups take no longer than their rows.
    """
    sizes = np.array([len(rows) for rows in groups])
    array = np.asarray(labels)[np.concatenate(groups)]
    owner = np.repeat(np.arange(len(groups)), sizes)
    if Task(task) is Task.MULTICLASS:
        place = owner * classes + _whole(array, classes)
        flat = np.bincount(place, minlength=len(groups) * classes)
        positive = flat.reshape(len(groups), classes).astype(np.float64)
        negative = sizes[:, np.newaxis] - positive
    else:
        positive, negative = (
            _add_up(cases, owner, len(groups)) for cases in _entries(array, classes)
        )
    rows = zip(positive, negative, sizes.tolist(), strict=True)
    return [LabelCounts(*row) for row in rows]


def _add_up(cases: npt.NDArray[np.bool_], owner: IntArray, number: int) -> FloatArray:
    columns = [np.bincount(owner, weights=column, minlength=number) for column in cases.T]
    return np.stack(columns, axis=1) if columns else np.zeros((number, 0))


def _whole(labels: npt.NDArray[Any], classes: int) -> IntArray:
    if labels.ndim != 1:
        raise ValueError(f"multi-class labels must have shape (N,), not {labels.shape}")
    with np.errstate(invalid="ignore"):  # NaN is refused below, by comparison
        whole = labels.astype(np.int64)
    if np.any(whole != labels) or np.any(whole < 0) or np.any(whole >= classes):
        raise ValueError(f"multi-class labels must be whole numbers from 0 to {classes - 1}")
    return whole


def _entries(
    labels: npt.NDArray[Any], classes: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which entries are positive and which negative."""
    if labels.ndim != 2 or labels.shape[1] != classes:
        raise ValueError(f"multi-label labels must have shape (N, {classes}), not {labels.shape}")
    positive, negative = labels == 1, labels == 0
    if not np.all(positive | negative | np.isnan(labels)):
        raise ValueError("multi-label labels must be 0, 1 or NaN (unknown)")
    return positive, negative
