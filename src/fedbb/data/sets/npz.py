"""A user's own arrays: an .npz file with images, labels and, if there are any, further facts."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.names import nearest
from fedbb.data.dataset import Dataset, assemble
from fedbb.data.examples import Examples, check_examples, count_numbered_classes
from fedbb.data.label_policy import REPLACEMENT, Policy
from fedbb.data.source import Source, read_options
from fedbb.data.splits import split_by_share, split_by_values
from fedbb.data.transforms import Layout, as_images
from fedbb.errors import DataError
from fedbb.records import Task

Arrays = Mapping[str, npt.NDArray[Any]]

_FAULTS = (
    OSError,
    ValueError,
    LookupError,
    EOFError,
    MemoryError,
    OverflowError,
    RuntimeError,  # an encrypted or otherwise unusual zip file
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
_RESERVED = {"images", "labels", "classes", "split", "test_images", "test_labels"}


@dataclass(frozen=True)
class NpzOptions:
    """How to read the arrays.

    Test examples are `test_images` and `test_labels` if the file has them; else those that its
    array `split` marks as test; else a random share.

    Attributes:
        layout: where the channels are; "auto" looks for an axis of size 1 or 3.
        test_share: share of test examples.
        group: array of which no value is in both parts, such as the patient.
        leave_out: values of `split` whose examples are not used.
        uncertain: what a multi-label −1 means.
    """

    layout: Layout = "auto"
    test_share: float = 0.2
    group: str | None = None
    leave_out: tuple[str, ...] = ()
    uncertain: Policy = "refuse"


def load(source: Source) -> Dataset:
    """Return the data set of an .npz file."""
    options = read_options(NpzOptions, source)
    if source.path is None:
        raise DataError(f"{source.name} data needs a path: the .npz file to read")
    arrays = read_npz(source.path, ("images", "labels"))
    if ("test_images" in arrays) != ("test_labels" in arrays):
        raise DataError(f"{source.path}: test_images and test_labels must come together")
    task, classes = _describe(arrays, source.path)
    whole = _examples(arrays, "", options, classes, source.path)
    check_examples(whole, task, len(classes), str(source.path))
    if "test_images" in arrays:
        train, test = whole, _examples(arrays, "test_", options, classes, source.path)
    elif "split" in arrays:
        sides = _texts(arrays["split"], len(whole), f"{source.path}: split")
        train, test = split_by_values(
            whole, sides, options.leave_out, lambda row: f"{source.path}: split[{row}]"
        )
    else:
        train, test = split_by_share(whole, options.test_share, options.group, source.seed)
    return assemble(source.path.stem, task, classes, train, test)


def read_npz(
    path: Path, needed: Sequence[str], optional: Sequence[str] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays `needed`, and those of `optional` that the file has; None means all.

    Pickled arrays are refused, since reading them runs code.
    """
    try:
        # Given an open file, numpy cannot leave it open where the archive is damaged.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array, not named ones")
            with archive:
                held = archive.files
                wanted = held if optional is None else {*needed, *optional}
                arrays = {name: archive[name] for name in held if name in wanted}
    except _FAULTS as error:
        raise DataError(f"cannot read {path} as .npz: {error}") from error
    for name in needed:
        if name not in arrays:
            raise DataError(f"{path}: no array {name!r}" + nearest(name, held))
    return arrays


def _describe(arrays: Arrays, path: Path) -> tuple[Task, tuple[str, ...]]:
    """Return the task, by the shape of the labels, and the names of the classes."""
    labels = arrays["labels"]
    if labels.ndim not in (1, 2):
        raise DataError(f"{path}: labels have shape {labels.shape}; allowed are (N,) and (N, C)")
    task = Task.MULTICLASS if labels.ndim == 1 else Task.MULTILABEL
    if "classes" in arrays:
        return task, read_class_names(arrays["classes"], path)
    if task is Task.MULTILABEL:
        return task, tuple(str(number) for number in range(labels.shape[1]))
    if labels.dtype.kind == "U":
        return task, tuple(np.unique(labels).tolist())
    return task, tuple(str(number) for number in range(_count_classes(arrays, path)))


def read_class_names(array: npt.NDArray[Any], path: Path) -> tuple[str, ...]:
    """Return the names in the array `classes` of a file; DataError if it is no list of names."""
    return tuple(_texts(array, None, f"{path}: classes"))


def _texts(array: npt.NDArray[Any], length: int | None, where: str) -> list[str]:
    """Return an array as texts; None allows any length."""
    if array.ndim != 1 or len(array) != (len(array) if length is None else length):
        needed = "one axis" if length is None else f"({length},)"
        raise DataError(f"{where} has shape {array.shape}; needed is {needed}")
    if array.dtype.kind not in "biufUS":
        raise DataError(f"{where} is {array.dtype}; needed is text")
    try:
        texts: list[str] = array.astype(np.str_).tolist()
    except UnicodeDecodeError as error:
        raise DataError(f"{where} cannot be read as text: {error}") from error
    return texts


def _count_classes(arrays: Arrays, path: Path) -> int:
    """Return the number of classes by the highest class number in any of the label arrays."""
    parts = {name: arrays[name] for name in ("labels", "test_labels") if name in arrays}
    for name, labels in parts.items():
        if labels.dtype.kind not in "iu" or not labels.size:
            raise DataError(
                f"{path}: {name} is {labels.dtype} of shape {labels.shape}; multi-class labels are "
                "whole numbers or class names"
            )
    return count_numbered_classes({f"{path}: {name}": part for name, part in parts.items()})


def _examples(
    arrays: Arrays, prefix: str, options: NpzOptions, classes: tuple[str, ...], path: Path
) -> Examples:
    """Return the examples of this prefix; other 1-D arrays of their length are columns."""
    where = f"{path}: {prefix}images"
    images = as_images(arrays[f"{prefix}images"], options.layout, where)
    labels = _labels(arrays[f"{prefix}labels"], options, classes, f"{path}: {prefix}labels")
    columns = {
        name.removeprefix(prefix): values.astype(str)
        for name, values in arrays.items()
        if name.startswith(prefix)
        and name not in _RESERVED
        and values.shape == (len(images),)
        and values.dtype.kind in "iuU"
    }
    return Examples(images, labels, columns)


def _labels(
    labels: npt.NDArray[Any], options: NpzOptions, classes: tuple[str, ...], where: str
) -> npt.NDArray[Any]:
    """Return labels as (N,) int64 or (N, C) float32; their values are checked elsewhere."""
    if labels.ndim == 1 and labels.dtype.kind == "U":
        return _numbers(labels, classes, where)
    if labels.ndim == 1:
        return labels.astype(np.int64) if labels.dtype.kind in "iu" else labels
    if labels.dtype.kind not in "biuf":
        raise DataError(f"{where} are {labels.dtype}; multi-label ones are 0, 1, −1 or NaN")
    marks = labels.astype(np.float32)
    if options.uncertain != "refuse":
        marks[marks == -1] = REPLACEMENT[options.uncertain]
    elif (marks == -1).any():
        row, column = (int(index) for index in np.argwhere(marks == -1)[0])
        raise DataError(
            f"{where}[{row}, {column}] is −1; set the option uncertain to zeros, ones or ignore"
        )
    return marks


def _numbers(labels: npt.NDArray[Any], classes: tuple[str, ...], where: str) -> npt.NDArray[Any]:
    number = {name: place for place, name in enumerate(classes)}
    for row, name in enumerate(labels.tolist()):
        if name not in number:
            raise DataError(f"{where}[{row}] is {name!r}, no class" + nearest(name, classes))
    return np.array([number[name] for name in labels.tolist()], dtype=np.int64)
