"""Labels of many samples, kept as the few different ones there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.errors import DataError
from fedbb.records import IntArray, Task

UNKNOWN = -1
_BLOCK = 39
"""So many digits of base three fit into 64 bits."""

Numbers = npt.NDArray[np.int32]
Marks = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Labels:
    """What each of N samples is labelled with; four bytes a sample, however many classes.

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
    labels: npt.ArrayLike, task: Task | str | None = None, classes: Sequence[str] | None = None
) -> Labels:
    """Return labels (N,) of class numbers or names, or (N, C) of 0, 1 and NaN or −1 for unknown."""
    array = np.asarray(labels)
    if array.ndim not in (1, 2) or array.size == 0:
        raise DataError(f"labels have shape {array.shape}; allowed are (N,) and (N, C), not empty")
    natural = Task.MULTICLASS if array.ndim == 1 else Task.MULTILABEL
    if task is not None and Task(task) is not natural:
        raise DataError(f"labels of shape {array.shape} are {natural}, not {Task(task)}")
    return _of_classes(array, classes) if array.ndim == 1 else _of_marks(array, classes)


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
    if array.dtype.kind in "US":
        found, numbers = np.unique(array.astype(str), return_inverse=True)
        names = tuple(found.tolist()) if classes is None else tuple(classes)
        place = {name: number for number, name in enumerate(names)}
        strange = [name for name in found.tolist() if name not in place]
        if strange:
            raise DataError(f"label {strange[0]!r} is none of the {len(names)} classes")
        array = np.array([place[name] for name in found.tolist()])[numbers]
    whole = _whole_numbers(array)
    number = int(whole.max()) + 1 if classes is None else len(classes)
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
        raise DataError(f"labels are {array.dtype}; allowed are whole numbers and names")
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
            f"label {row}, class {column} is {array[row, column]}; allowed are 0, 1 and NaN or −1"
        )
    names = _names(array.shape[1]) if classes is None else tuple(classes)
    if len(names) != array.shape[1]:
        raise DataError(f"{len(names)} classes do not fit labels of shape {array.shape}")
    marks = np.where(unknown, UNKNOWN, array == 1).astype(np.int8)
    return from_marks(names, marks)


def _names(number: int) -> tuple[str, ...]:
    return tuple(str(place) for place in range(number))
