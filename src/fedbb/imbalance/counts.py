"""Counting the positive and negative cases of each class (A and B of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedbb.records import MOST_CLASSES, FloatArray, IntArray, LabelCounts, Task

Values = npt.ArrayLike | Tensor
"""Labels or counts: a list, an array, a tensor, or a column or frame of pandas or polars."""


def count_labels(labels: npt.ArrayLike, task: Task | str, classes: int) -> LabelCounts:
    """Return the number of positive and negative cases of each class.

    Args:
        labels: (N,) class numbers for a multi-class task; (N, C) of 0, 1 and NaN for a multi-label
            task, where NaN is an unknown label, which counts as neither.
        task: "multiclass" or "multilabel".
        classes: number of classes C, at most 100,000 for a multi-class task.

    Returns:
        Positive and negative cases of each class, (C,) each, and the number of samples.

    Raises:
        ValueError: labels of another shape, or outside of what the task allows.

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
    """Return the counts of many groups of rows at once, equal to `count_labels` of each.

    The time depends on the number of rows, not on the number of groups.
    """
    sizes = np.array([len(rows) for rows in groups])
    array = np.asarray(labels)[np.concatenate(groups)]
    owner = np.repeat(np.arange(len(groups)), sizes)
    if Task(task) is Task.MULTICLASS:
        positive = count_classes(_whole(array, classes), owner, (len(groups), classes))
        negative = sizes[:, np.newaxis] - positive
    else:
        positive, negative = (
            sum_by_group(cases, owner, len(groups)) for cases in _entries(array, classes)
        )
    rows = zip(positive, negative, sizes.tolist(), strict=True)
    return [LabelCounts(*row) for row in rows]


def count_classes(
    labels: npt.NDArray[np.integer[Any]], groups: IntArray, shape: tuple[int, int]
) -> FloatArray:
    """Return the samples of each class in each group, `shape` being (groups, classes)."""
    flat = np.bincount(groups * shape[1] + labels, minlength=shape[0] * shape[1])
    return flat.reshape(shape).astype(np.float64)


def sum_by_group(
    values: npt.NDArray[Any],
    groups: IntArray,
    number: int,
    *,
    rows: IntArray | None = None,
    times: npt.NDArray[Any] | None = None,
) -> FloatArray:
    """Return the sums (number, C) of rows of `values` over their groups (R,).

    Args:
        values: rows (R, C), or the different ones (S, C) that `rows` refers to.
        groups: the group of each row.
        number: number of groups.
        rows: (R,), which row of `values` each is.
        times: (R,), a factor on each row.
    """

    def add_up(column: npt.NDArray[Any]) -> FloatArray:
        # One column at a time: all rows together may be far larger than `values`.
        picked = column if rows is None else column[rows]
        weights = picked if times is None else times * picked
        return np.bincount(groups, weights=weights, minlength=number).astype(np.float64)

    sums = [add_up(column) for column in values.T]
    return np.stack(sums, axis=1) if sums else np.zeros((number, 0))


def to_array(values: Values) -> npt.NDArray[Any]:
    """Return labels as an array of numbers or of text.

    Text, category and nullable columns of pandas become text or numbers; a missing number is NaN.
    Only `to_numpy` is asked of them, so that other libraries' columns do as well.

    Raises:
        ValueError: text among numbers, or a missing value among text.
    """
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    convert = getattr(values, "to_numpy", None)
    array = np.asarray(convert() if convert is not None else values)
    if array.dtype.kind in "ST":
        return array.astype(np.str_)
    return _plain(array) if array.dtype.kind == "O" else array


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of Python objects as one of text or of numbers."""
    flat = array.ravel().tolist()
    is_text = [isinstance(value, str) for value in flat]
    if flat and all(is_text):
        return np.array(flat, dtype=np.str_).reshape(array.shape)
    if any(is_text):
        odd = is_text.index(False)
        raise ValueError(f"label {odd} is {flat[odd]!r} among text; remove or name such samples")
    try:
        numbers = [np.nan if _is_missing(value) else value for value in flat]
        return np.array(numbers, dtype=np.result_type(*numbers)).reshape(array.shape)
    except (TypeError, ValueError) as error:
        raise ValueError(f"labels must be numbers or text: {error}") from error


def _is_missing(value: Any) -> bool:
    # pandas has a missing value of its own, which cannot be compared with anything.
    return value is None or type(value).__name__ == "NAType"


def number_classes(
    labels: npt.NDArray[Any], classes: Sequence[str] | None = None
) -> tuple[IntArray, tuple[str, ...]]:
    """Return text labels (N,) as class numbers, and the names of the classes.

    Args:
        labels: one class name per sample.
        classes: the classes in their order; None means those that occur, sorted.

    Raises:
        ValueError: a label that is none of `classes`.
    """
    found, places = np.unique(labels, return_inverse=True)
    names = tuple(found.tolist()) if classes is None else tuple(classes)
    number = {name: place for place, name in enumerate(names)}
    for name in found.tolist():
        if name not in number:
            raise ValueError(f"label {name!r} is none of the {len(names)} classes")
    return np.array([number[name] for name in found.tolist()], dtype=np.int64)[places], names


def _whole(labels: npt.NDArray[Any], classes: int) -> IntArray:
    if labels.ndim != 1:
        raise ValueError(f"multi-class labels must have shape (N,), not {labels.shape}")
    if classes > MOST_CLASSES:
        raise ValueError(f"{classes} classes are more than the {MOST_CLASSES} allowed")
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
