"""The record every loader returns: training and test examples, checked, with their statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.data.transforms import Augmentation, channel_statistics
from fedbb.errors import DataError
from fedbb.records import IntArray, Task


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled images.

    Attributes:
        inputs: (N, channels, height, width), uint8 or float32.
        labels: (N,) int64 class numbers for a multi-class task; (N, C) float32 of 0, 1 and NaN for
            a multi-label task, where NaN is an unknown label.
        columns: further facts of each image as text (N,), such as its site or patient.
    """

    inputs: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    columns: Mapping[str, npt.NDArray[np.str_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: IntArray) -> Examples:
        """Return the examples at these places, in this order."""
        columns = {name: values[indices] for name, values in self.columns.items()}
        return Examples(self.inputs[indices], self.labels[indices], columns)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set ready to be divided among clients.

    Attributes:
        name: name for logs and reports.
        task: multi-class or multi-label.
        classes: names of the classes, by number.
        train: training examples.
        test: test examples.
        mean: mean per channel of the training images, with pixels in [0, 1].
        std: standard deviation per channel.
        augmentation: random changes to training images.
        notes: what the loader left out or decided, for the log of a run.
    """

    name: str
    task: Task
    classes: tuple[str, ...]
    train: Examples
    test: Examples
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation = field(default_factory=Augmentation)
    notes: tuple[str, ...] = ()

    @property
    def channels(self) -> int:
        """Number of image channels."""
        return int(self.train.inputs.shape[1])


def assemble(
    name: str, task: Task, classes: tuple[str, ...], train: Examples, test: Examples
) -> Dataset:
    """Return the data set with the statistics of its training images, if it is valid."""
    # The statistics of invalid images would warn before the check could name the place.
    check_examples(train, task, len(classes), f"{name} train")
    mean, std = channel_statistics(train.inputs)
    return check_dataset(Dataset(name, task, classes, train, test, mean, std))


def check_dataset(dataset: Dataset) -> Dataset:
    """Return the data set if its parts fit together; DataError names the first that does not."""
    _check_classes(dataset)
    for part, examples in (("train", dataset.train), ("test", dataset.test)):
        check_examples(examples, dataset.task, len(dataset.classes), f"{dataset.name} {part}")
    _check_shapes(dataset)
    return dataset


def check_examples(examples: Examples, task: Task, classes: int, where: str) -> None:
    """Refuse an empty set, unequal lengths, images not finite, labels outside the classes."""
    if len(examples.inputs) == 0:
        raise DataError(f"{where} set is empty")
    lengths = {"labels": len(examples.labels)}
    lengths |= {f"column {name}": len(values) for name, values in examples.columns.items()}
    for what, length in lengths.items():
        if length != len(examples.inputs):
            raise DataError(f"{where} has {len(examples.inputs)} images but {length} {what}")
    _check_images(examples, where)
    if task is Task.MULTICLASS:
        _check_class_numbers(examples, classes, where)
    else:
        _check_label_rows(examples, classes, where)


def _check_images(examples: Examples, where: str) -> None:
    images = examples.inputs
    if images.ndim != 4 or 0 in images.shape:
        raise DataError(
            f"{where} images have shape {images.shape}; expected (N, channels, height, width)"
        )
    if images.dtype not in (np.uint8, np.float32):
        raise DataError(f"{where} images are {images.dtype}; allowed are uint8 and float32")
    if images.dtype == np.float32:
        finite = np.isfinite(images).all(axis=(1, 2, 3))
        if not finite.all():
            raise DataError(
                f"{where} image {int(np.argmin(finite))} holds NaN or infinity "
                f"({int((~finite).sum())} such images)"
            )


def _check_class_numbers(examples: Examples, classes: int, where: str) -> None:
    labels = examples.labels
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"{where} labels are {labels.dtype} of shape {labels.shape}; "
            "multi-class labels are one whole number per image"
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


def _check_classes(dataset: Dataset) -> None:
    names = dataset.classes
    if not names:
        raise DataError(f"{dataset.name} has no classes")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{dataset.name} names the class {twice!r} twice")


def _check_shapes(dataset: Dataset) -> None:
    train, test = dataset.train.inputs, dataset.test.inputs
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise DataError(
            f"{dataset.name} trains on {train.dtype} images of shape {train.shape[1:]} "
            f"but tests on {test.dtype} of {test.shape[1:]}"
        )
    for what, values in (("mean", dataset.mean), ("std", dataset.std)):
        if len(values) != train.shape[1] or not np.isfinite(values).all():
            raise DataError(
                f"{dataset.name} has {what} {values}; needed is one number for each of "
                f"{train.shape[1]} channels"
            )
    if min(dataset.std) <= 0:
        raise DataError(f"{dataset.name} has std {dataset.std}; each must be above 0")
