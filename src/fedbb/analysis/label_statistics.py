"""Labels of many samples, kept compactly, and their statistics by client and class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.data.examples import count_numbered_classes
from fedbb.errors import DataError
from fedbb.imbalance import Values, count_classes, number_classes, sum_by_group, to_array
from fedbb.partition.label_distance import class_mass
from fedbb.records import FloatArray, IntArray, Task

MOST_CELLS = 50_000_000
MOST_TOGETHER = 512
"""Above this number of classes the table of co-occurrences would be larger than all the rest."""
UNKNOWN = -1
_BLOCK = 39
"""Digits of base three that fit into 64 bits."""

Numbers = npt.NDArray[np.int32]
Marks = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of N samples in four bytes each, for any number of classes.

    `pattern` (N,) is the class number of each sample (multi-class), or the row of `patterns` (S, C)
    that it has (multi-label), which holds 1, 0 and −1 for unknown. Multi-class labels have none.
    """

    task: Task
    classes: tuple[str, ...]
    pattern: Numbers
    patterns: Marks

    def __len__(self) -> int:
        return len(self.pattern)

    def as_array(self) -> npt.NDArray[Any]:
        """Return the labels as data sets hold them: (N,) int64, or (N, C) float32 with NaN."""
        if self.task is Task.MULTICLASS:
            return self.pattern.astype(np.int64)
        values = self.patterns.astype(np.float32)
        values[values == UNKNOWN] = np.nan
        return np.asarray(values[self.pattern])


def from_array(
    labels: Values, task: Task | str | None = None, classes: Sequence[str] | None = None
) -> Labels:
    """Return labels (N,) of class numbers or names, or (N, C) of 0, 1 and NaN or −1 for unknown.

    Names of the classes are those given, those of text labels, or those of a frame's columns.
    """
    try:
        array = to_array(labels)
    except ValueError as error:
        raise DataError(str(error)) from error
    if array.ndim not in (1, 2) or array.size == 0:
        raise DataError(f"labels have shape {array.shape}; allowed: (N,) and (N, C), not empty")
    natural = Task.MULTICLASS if array.ndim == 1 else Task.MULTILABEL
    if task is not None and Task(task) is not natural:
        raise DataError(f"labels of shape {array.shape} are {natural}, not {Task(task)}")
    if array.ndim == 1:
        return _of_classes(array, classes)
    columns = getattr(labels, "columns", None)
    if classes is None and columns is not None:
        classes = [str(name) for name in columns]
    return _of_marks(array, classes)


def from_marks(classes: Sequence[str], marks: Marks) -> Labels:
    """Return multi-label labels of a table (N, C) of 1, 0 and −1."""
    pattern, first = number_rows(marks)
    return Labels(Task.MULTILABEL, tuple(classes), pattern, marks[first])


def number_rows(marks: Marks) -> tuple[Numbers, IntArray]:
    """Return which of the different rows each row is, and where each different one first stands."""
    numbers = np.zeros(len(marks), dtype=np.int64)
    for start in range(0, marks.shape[1], _BLOCK):
        digits = marks[:, start : start + _BLOCK].astype(np.int64) + 1
        code = digits @ 3 ** np.arange(digits.shape[1], dtype=np.int64)
        block = np.unique(code, return_inverse=True)[1]
        numbers = np.unique(numbers * (int(block.max()) + 1) + block, return_inverse=True)[1]
    first = np.unique(numbers, return_index=True)[1]
    return numbers.astype(np.int32), first.astype(np.int64)


def _of_classes(array: npt.NDArray[Any], classes: Sequence[str] | None) -> Labels:
    if array.dtype.kind == "U":
        try:
            array, classes = number_classes(array, classes)
        except ValueError as error:
            raise DataError(str(error)) from error
    whole = _whole_numbers(array)
    number = count_numbered_classes({"sample": whole}) if classes is None else len(classes)
    if whole.max() >= number:
        row = int(whole.argmax())
        raise DataError(f"label {row} is {whole[row]}; {number} classes count from 0")
    names = _names(number) if classes is None else tuple(classes)
    return Labels(Task.MULTICLASS, names, whole.astype(np.int32), no_patterns(number))


def no_patterns(classes: int) -> Marks:
    """Return the empty table that stands beside multi-class labels."""
    return np.empty((0, classes), dtype=np.int8)


def _whole_numbers(array: npt.NDArray[Any]) -> IntArray:
    if array.dtype.kind not in "iufb":
        raise DataError(f"labels are {array.dtype}; allowed: whole numbers and names")
    wrong = ~np.isfinite(array) | (array < 0) | (array > 2**31 - 2)
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
    wrong |= whole != array
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"label {row} is {array[row]}; classes are whole numbers from 0")
    return whole


def _of_marks(array: npt.NDArray[Any], classes: Sequence[str] | None) -> Labels:
    if array.dtype.kind not in "iufb":
        raise DataError(f"labels are {array.dtype}; multi-label ones are numbers 0 and 1")
    unknown = np.isnan(array) | (array == UNKNOWN)
    wrong = ~(unknown | (array == 0) | (array == 1))
    if wrong.any():
        row, column = (int(place) for place in np.argwhere(wrong)[0])
        raise DataError(
            f"label {row}, class {column} is {array[row, column]}; allowed: 0, 1 and NaN or −1"
        )
    names = _names(array.shape[1]) if classes is None else tuple(classes)
    if len(names) != array.shape[1]:
        raise DataError(f"{len(names)} classes do not fit labels of shape {array.shape}")
    marks = np.where(unknown, UNKNOWN, array == 1).astype(np.int8)
    return from_marks(names, marks)


def _names(number: int) -> tuple[str, ...]:
    return tuple(str(place) for place in range(number))


@dataclass(frozen=True, eq=False)
class LabelStatistics:
    """Cases by client and class (K, C), samples by client, and the sets of classes that occur.

    `mixes` (K, C + 1) is the label distribution of each client, the last column for samples
    without a class. `sets` (S, C) are the different label sets, `set_sizes` their samples; none is
    listed for multi-class data. `together` (C, C) counts the samples that have both classes.
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


def measure_labels(labels: Labels, owners: IntArray, clients: tuple[str, ...]) -> LabelStatistics:
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
        # Python refuses to convert thousands of digits; without zeros at the front, the longer
        # number is the larger one.
        digits = [name.lstrip("0") for name in names]
        return sorted(range(len(names)), key=lambda at: (len(digits[at]), digits[at], names[at]))
    return sorted(range(len(names)), key=lambda place: names[place])


def _count_classes(
    labels: Labels, owners: IntArray, clients: tuple[str, ...], samples: IntArray
) -> LabelStatistics:
    shape = (len(clients), len(labels.classes))
    positive = count_classes(labels.pattern, owners, shape)
    shares = positive / np.maximum(samples, 1)[:, None]
    return LabelStatistics(
        labels.task,
        labels.classes,
        clients,
        positive,
        samples[:, None] - positive,
        samples,
        mixes=np.column_stack([shares, np.zeros(shape[0])]),
        sets=labels.patterns,
        set_sizes=np.zeros(0, dtype=np.int64),
        together=None,
    )


def _count_patterns(
    labels: Labels, owners: IntArray, clients: tuple[str, ...], samples: IntArray
) -> LabelStatistics:
    has, hasnt = labels.patterns == 1, labels.patterns == 0
    pairs, times = np.unique(owners * len(has) + labels.pattern, return_counts=True)
    client, pattern = np.divmod(pairs, len(has))
    number = len(clients)
    mass = class_mass(has, client, number, rows=pattern, times=times)
    sizes = np.bincount(labels.pattern, minlength=len(has)).astype(np.int64)
    sets, set_sizes = _merge_sets(has, sizes)
    return LabelStatistics(
        labels.task,
        labels.classes,
        clients,
        sum_by_group(has, client, number, rows=pattern, times=times),
        sum_by_group(hasnt, client, number, rows=pattern, times=times),
        samples,
        mixes=mass / np.maximum(samples, 1)[:, None],
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
