"""Labelled examples, and what must hold of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.data.mapped import Inputs, chunk_rows, take_rows
from fedbb.errors import DataError
from fedbb.records import MOST_CLASSES, IntArray, Task

TYPES = (np.uint8, np.float32, np.int32, np.int64)
"""The types of inputs: pixels, numbers, and token ids."""


_CHECKED = 2**24
"""Numbers that are checked at once."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled inputs of a network.

    Attributes:
        inputs: (N, …), uint8, float32, int32 or int64, such as images (N, channels, height, width).
        labels: (N,) int64 class numbers for a multi-class task; (N, C) float32 of 0, 1 and NaN for
            a multi-label task, where NaN is an unknown label.
        columns: further facts of each example as text (N,), such as its site or patient.
        teacher: logits (N, C) of a teacher, float32, where a method learns from them.
    """

    inputs: Inputs
    labels: npt.NDArray[Any]
    columns: Mapping[str, npt.NDArray[np.str_]] = field(default_factory=dict)
    teacher: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        form = f"inputs {self.inputs.dtype} {self.inputs.shape}"
        return f"Examples: {form}, labels {self.labels.dtype} {self.labels.shape}"

    def take(self, indices: IntArray) -> Examples:
        """Return the examples at these places, in this order."""
        columns = {name: values[indices] for name, values in self.columns.items()}
        teacher = None if self.teacher is None else self.teacher[indices]
        return Examples(take_rows(self.inputs, indices), self.labels[indices], columns, teacher)


def count_numbered_classes(labels: Mapping[str, npt.NDArray[Any]]) -> int:
    """Return how many classes there are if class numbers alone tell: one more than the highest.

    Args:
        labels: whole numbers (N,) of the parts of a data set, by the name that messages give them.

    Raises:
        DataError: a number far above the number of samples, whose classes would fill the memory.
    """
    allowed = min(MOST_CLASSES, max(1000, 2 * sum(len(part) for part in labels.values())))
    number = 1
    for where, part in labels.items():
        highest = int(part.max(initial=0))
        if highest >= allowed:
            raise DataError(
                f"{where} label {int(part.argmax())} is {highest}; without the names of the "
                f"classes at most {allowed:,} are allowed here: correct the label or name all "
                "classes"
            )
        number = max(number, highest + 1)
    return number


def check_examples(examples: Examples, task: Task, classes: int, where: str) -> None:
    """Refuse an empty set, unequal lengths, inputs not finite, labels outside the classes."""
    if len(examples.inputs) == 0:
        raise DataError(f"{where} set is empty")
    lengths = {"labels": len(examples.labels)}
    lengths |= {f"column {name}": len(values) for name, values in examples.columns.items()}
    for what, length in lengths.items():
        if length != len(examples.inputs):
            raise DataError(f"{where} has {len(examples.inputs)} inputs but {length} {what}")
    _check_inputs(examples, where)
    if task is Task.MULTICLASS:
        _check_class_numbers(examples, classes, where)
    else:
        _check_label_rows(examples, classes, where)


def _check_inputs(examples: Examples, where: str) -> None:
    inputs = examples.inputs
    if inputs.ndim < 2 or 0 in inputs.shape:
        raise DataError(
            f"{where} inputs have shape {inputs.shape}; expected are examples of at least one "
            "axis, such as (N, features) or (N, channels, height, width)"
        )
    if inputs.dtype not in TYPES:
        allowed = ", ".join(str(np.dtype(kind)) for kind in TYPES)
        raise DataError(f"{where} inputs are {inputs.dtype}; allowed are {allowed}")
    if inputs.dtype == np.float32:
        finite = _finite_rows(inputs)
        if not finite.all():
            raise DataError(
                f"{where} input {int(np.argmin(finite))} holds NaN or infinity "
                f"({int((~finite).sum())} such inputs)"
            )


def _finite_rows(inputs: Inputs) -> npt.NDArray[np.bool_]:
    """Return which inputs hold finite numbers only; a set on disk is read piece by piece."""
    step = chunk_rows(inputs, _CHECKED, len(inputs))
    axes = tuple(range(1, inputs.ndim))
    pieces = (inputs[start : start + step] for start in range(0, len(inputs), step))
    return np.concatenate([np.isfinite(piece).all(axis=axes) for piece in pieces])


def _check_class_numbers(examples: Examples, classes: int, where: str) -> None:
    labels = examples.labels
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"{where} labels are {labels.dtype} of shape {labels.shape}; "
            "multi-class labels are one whole number per example"
        )
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        place = int(np.argmax(outside))
        raise DataError(
            f"{where} label {place} is {int(labels[place])}; allowed are 0 to {classes - 1} "
            f"({int(outside.sum())} labels outside)"
        )


def _check_label_rows(examples: Examples, classes: int, where: str) -> None:
    labels = examples.labels
    if labels.ndim != 2 or labels.shape[1] != classes or labels.dtype.kind != "f":
        raise DataError(
            f"{where} labels are {labels.dtype} of shape {labels.shape}; "
            f"multi-label ones are float32 of shape (N, {classes})"
        )
    outside = ~((labels == 0) | (labels == 1) | np.isnan(labels))
    if outside.any():
        row, column = (int(index) for index in np.argwhere(outside)[0])
        raise DataError(
            f"{where} label {row} of class {column} is {labels[row, column]:g}; "
            "allowed are 0, 1 and NaN (unknown)"
        )
