"""What must hold of examples and of a data set; DataError names the first part that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedbb.data.examples import Examples
from fedbb.data.mapped import Inputs, chunk_rows
from fedbb.data.transforms import PADDINGS
from fedbb.errors import DataError
from fedbb.records import Task

if TYPE_CHECKING:
    from fedbb.data.dataset import Dataset

TYPES = (np.uint8, np.float32, np.int32, np.int64)
"""The types of inputs: pixels, numbers, and token ids."""


_CHECKED = 2**24
"""Numbers that are checked at once."""


def check_dataset(dataset: Dataset) -> Dataset:
    """Return the data set if its parts fit together; DataError names the first that does not."""
    _check_classes(dataset)
    parts = {"train": dataset.train, "test": dataset.test}
    if dataset.validation is not None:
        parts["validation"] = dataset.validation
    for part, examples in parts.items():
        check_examples(examples, dataset.task, len(dataset.classes), f"{dataset.name} {part}")
    _check_shapes(dataset)
    return dataset


def _check_classes(dataset: Dataset) -> None:
    names = dataset.classes
    if not names:
        raise DataError(f"{dataset.name} has no classes")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{dataset.name} names the class {twice!r} twice")


def _check_shapes(dataset: Dataset) -> None:
    train = dataset.train.inputs
    others = (
        {"tests": dataset.test}
        if dataset.validation is None
        else {
            "tests": dataset.test,
            "validates": dataset.validation,
        }
    )
    for verb, part in others.items():
        inputs = part.inputs
        if train.shape[1:] != inputs.shape[1:] or train.dtype != inputs.dtype:
            raise DataError(
                f"{dataset.name} trains on {train.dtype} inputs of shape {train.shape[1:]} "
                f"but {verb} on {inputs.dtype} of {inputs.shape[1:]}"
            )
    _check_augmentation(dataset)
    if dataset.mean or dataset.std:
        _check_statistics(dataset)


def _check_augmentation(dataset: Dataset) -> None:
    train, augmentation = dataset.train.inputs, dataset.augmentation
    if augmentation.padding not in PADDINGS:
        raise DataError(
            f"{dataset.name} has padding {augmentation.padding!r}; allowed: {', '.join(PADDINGS)}"
        )
    if augmentation.moves and (train.ndim != 4 or train.dtype.kind == "i"):
        raise DataError(
            f"{dataset.name} cannot be cropped or flipped: its inputs are {train.dtype} of shape "
            f"{train.shape[1:]}, not images (channels, height, width)"
        )
    if augmentation.padding == "reflect" and augmentation.crop >= min(train.shape[2:], default=1):
        raise DataError(
            f"{dataset.name} cannot be cropped by {augmentation.crop} with reflected padding: "
            f"its images of shape {train.shape[1:]} have fewer pixels inside the border"
        )


def _check_statistics(dataset: Dataset) -> None:
    for what, values in (("mean", dataset.mean), ("std", dataset.std)):
        if len(values) != dataset.channels or not np.isfinite(values).all():
            raise DataError(
                f"{dataset.name} has {what} {values}; needed: one number for each of "
                f"{dataset.channels} channels"
            )
    if min(dataset.std) <= 0:
        raise DataError(f"{dataset.name} has std {dataset.std}; each must be above 0")


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
            f"{where} inputs have shape {inputs.shape}; expected: examples of at least one "
            "axis, such as (N, features) or (N, channels, height, width)"
        )
    if inputs.dtype not in TYPES:
        allowed = ", ".join(str(np.dtype(kind)) for kind in TYPES)
        raise DataError(f"{where} inputs are {inputs.dtype}; allowed: {allowed}")
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
            f"{where} label {place} is {int(labels[place])}; allowed: 0 to {classes - 1} "
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
            "allowed: 0, 1 and NaN (unknown)"
        )
