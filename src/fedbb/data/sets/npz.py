"""A user's own arrays: an .npz file, or a folder of .npy files, with inputs, labels and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.names import nearest
from fedbb.data.array_files import StoredArray, find_arrays, missing_array, read_inputs, read_texts
from fedbb.data.checks import check_examples
from fedbb.data.dataset import Dataset, assemble
from fedbb.data.examples import Examples, count_numbered_classes
from fedbb.data.images.decode import Size, as_size, resize_arrays
from fedbb.data.label_policy import REPLACEMENT, Policy
from fedbb.data.rows import as_inputs
from fedbb.data.source import Source, read_options
from fedbb.data.splits import split_by_share, split_by_values
from fedbb.data.transforms import Layout, as_images
from fedbb.errors import DataError
from fedbb.records import Task

Array = npt.NDArray[Any]

_RESERVED = {"images", "inputs", "labels", "classes", "split"}

PREFIXES = ("", "test_", "val_")
"""What the names of the arrays of training, test and validation examples begin with."""


@dataclass(frozen=True)
class NpzOptions:
    """How to read the arrays.

    Test examples are `test_images` (or `test_inputs`) and `test_labels` if the file has them; else
    those that its array `split` marks as test; else a random share. Validation examples likewise
    begin with `val_`, or are marked val.

    Attributes:
        layout: where the channels are; "auto" looks for an axis of size 1 or 3.
        test_share: share of test examples.
        group: array of which no value is in both parts, such as the patient.
        leave_out: values of `split` whose examples are not used.
        uncertain: what a multi-label −1 means.
        size: height and width that images are scaled to, or one number for both.
    """

    layout: Layout = "auto"
    test_share: float = 0.2
    group: str | None = None
    leave_out: tuple[str, ...] = ()
    uncertain: Policy = "refuse"
    size: Size = None


def load(source: Source) -> Dataset:
    """Return the data set of an .npz file or a folder of .npy files."""
    options = read_options(NpzOptions, source)
    if source.path is None:
        raise DataError(f"{source.name} data needs a path: the .npz file to read")
    path = source.path
    stored = find_arrays(path)
    inputs = _input_name(stored, path)
    labels = {f"{prefix}labels" for prefix in PREFIXES}
    small = {
        name: array.read()
        for name, array in stored.items()
        if name in labels or name in ("classes", "split") or len(array.shape) <= 1
    }
    task, classes = _describe(small, path)
    parts = {}
    for prefix in PREFIXES:
        if f"{prefix}{inputs}" in stored:
            given = read_array(stored[f"{prefix}{inputs}"], inputs == "images", options, source)
            parts[prefix] = _examples(small, given, prefix, options, classes, path)
    whole = parts[""]
    check_examples(whole, task, len(classes), str(path))
    validation = parts.get("val_")
    if "test_" in parts:
        return assemble(path.stem, task, classes, whole, parts["test_"], validation)
    if "split" in small:
        sides = read_texts(small["split"], len(whole), f"{path}: split")
        train, test, marked = split_by_values(
            whole, sides, options.leave_out, lambda row: f"{path}: split[{row}]"
        )
        if marked is not None and validation is not None:
            raise DataError(f"{path}: validation examples are both in val_{inputs} and in split")
        return assemble(path.stem, task, classes, train, test, validation or marked)
    train, test = split_by_share(whole, options.test_share, options.group, source.seed)
    return assemble(path.stem, task, classes, train, test, validation)


def _input_name(stored: Mapping[str, StoredArray], path: Path) -> str:
    """Return whether a file has images or other inputs, if all of its parts agree."""
    name = "inputs" if "inputs" in stored and "images" not in stored else "images"
    for needed in (name, "labels"):
        if needed not in stored:
            raise missing_array(path, needed, stored)
    for prefix in PREFIXES[1:]:
        if (f"{prefix}{name}" in stored) != (f"{prefix}labels" in stored):
            raise DataError(f"{path}: {prefix}{name} and {prefix}labels must come together")
    return name


def read_array(
    array: StoredArray, is_image: bool, options: NpzOptions, source: Source
) -> npt.NDArray[Any]:
    """Return the inputs of an array, converted; a large one memory-mapped.

    Images get an axis of channels and are pixels from 0 to 255 or fractions. Other inputs keep
    their shape and type, so that whole numbers are token ids.
    """
    where = f"{array.path}: {array.name}"
    size = as_size(options.size, source.name)
    if is_image:
        convert = partial(_images, layout=options.layout, size=size, where=where)
    else:
        convert = partial(_plain, layout=options.layout, size=size, where=where)
    settings = (is_image, options.layout, size)
    return read_inputs(array, convert, settings, source.image_cache)


def _images(array: Array, layout: Layout, size: tuple[int, int] | None, where: str) -> Array:
    images = as_images(array, layout, where)
    return images if size is None else resize_arrays(images, size, where)


def _plain(array: Array, layout: Layout, size: tuple[int, int] | None, where: str) -> Array:
    inputs = as_inputs(array, where)
    if layout == "channels-last":
        if inputs.ndim < 3:
            raise DataError(f"{where} of shape {inputs.shape} has no axis of channels to move")
        inputs = np.ascontiguousarray(np.moveaxis(inputs, -1, 1))
    return inputs if size is None else resize_arrays(inputs, size, where)


def _describe(arrays: Mapping[str, Array], path: Path) -> tuple[Task, tuple[str, ...]]:
    """Return the task, by the shape of the labels, and the names of the classes."""
    labels = arrays["labels"]
    if labels.ndim not in (1, 2):
        raise DataError(f"{path}: labels have shape {labels.shape}; allowed: (N,) and (N, C)")
    task = Task.MULTICLASS if labels.ndim == 1 else Task.MULTILABEL
    if "classes" in arrays:
        return task, read_class_names(arrays["classes"], path)
    if task is Task.MULTILABEL:
        return task, tuple(str(number) for number in range(labels.shape[1]))
    if labels.dtype.kind == "U":
        return task, tuple(np.unique(labels).tolist())
    return task, tuple(str(number) for number in range(_count_classes(arrays, path)))


def read_class_names(array: npt.NDArray[Any], path: Path) -> tuple[str, ...]:
    """Return the names in the array `classes` of a file; DataError if it is not a list of names."""
    return tuple(read_texts(array, None, f"{path}: classes"))


def _count_classes(arrays: Mapping[str, Array], path: Path) -> int:
    """Return the number of classes by the highest class number in any of the label arrays."""
    names = [f"{prefix}labels" for prefix in PREFIXES]
    parts = {name: arrays[name] for name in names if name in arrays}
    for name, labels in parts.items():
        if labels.dtype.kind not in "iu" or not labels.size:
            raise DataError(
                f"{path}: {name} is {labels.dtype} of shape {labels.shape}; multi-class labels are "
                "whole numbers or class names"
            )
    return count_numbered_classes({f"{path}: {name}": part for name, part in parts.items()})


def _examples(
    arrays: Mapping[str, Array],
    inputs: Array,
    prefix: str,
    options: NpzOptions,
    classes: tuple[str, ...],
    path: Path,
) -> Examples:
    """Return the examples of this prefix; other 1-D arrays of their length are columns."""
    labels = _labels(arrays[f"{prefix}labels"], options, classes, f"{path}: {prefix}labels")
    columns = {
        name.removeprefix(prefix): values.astype(str)
        for name, values in arrays.items()
        if name.startswith(prefix)
        and name.removeprefix(prefix) not in _RESERVED
        and not (prefix == "" and name.startswith(PREFIXES[1:]))
        and values.shape == (len(inputs),)
        and values.dtype.kind in "iuU"
    }
    return Examples(inputs, labels, columns)


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
