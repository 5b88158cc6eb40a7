"""Counting the positive and negative cases of each class (A and B of the paper)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.records import LabelCounts, Task


def count_labels(labels: npt.ArrayLike, task: Task | str, classes: int) -> LabelCounts:
    """Return how many cases of each class these labels hold.

    Multi-class labels are (N,) integers; multi-label ones (N, C) of 0, 1 and NaN for an unknown
    label, which counts as neither.

    >>> count_labels([0, 0, 2], "multiclass", classes=3).negative
    array([1., 3., 2.])
    """
    array = np.asarray(labels)
    if Task(task) is Task.MULTICLASS:
        positive = _count_classes(array, classes)
        negative = len(array) - positive
    else:
        positive, negative = _count_entries(array, classes)
    return LabelCounts(positive, negative, samples=len(array))


def _count_classes(labels: npt.NDArray[Any], classes: int) -> npt.NDArray[np.float64]:
    if labels.ndim != 1:
        raise ValueError(f"multi-class labels must have shape (N,), not {labels.shape}")
    with np.errstate(invalid="ignore"):  # NaN is refused below, by comparison
        whole = labels.astype(np.int64)
    if np.any(whole != labels) or np.any(whole < 0) or np.any(whole >= classes):
        raise ValueError(f"multi-class labels must be whole numbers from 0 to {classes - 1}")
    return np.bincount(whole, minlength=classes).astype(np.float64)


def _count_entries(
    labels: npt.NDArray[Any], classes: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if labels.ndim != 2 or labels.shape[1] != classes:
        raise ValueError(f"multi-label labels must have shape (N, {classes}), not {labels.shape}")
    positive, negative = labels == 1, labels == 0
    if not np.all(positive | negative | np.isnan(labels)):
        raise ValueError("multi-label labels must be 0, 1 or NaN (unknown)")
    return positive.sum(axis=0).astype(np.float64), negative.sum(axis=0).astype(np.float64)
