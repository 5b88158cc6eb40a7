"""Rows of torch data sets, and arrays of the user's, as the arrays that a data set holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import TensorDataset

from fedbb._util.names import nearest
from fedbb.data.examples import count_numbered_classes
from fedbb.errors import DataError
from fedbb.records import Task

Array = npt.NDArray[Any]

INPUT_KEYS = ("image", "img", "input", "inputs", "x", "input_ids", "pixel_values", "features")
"""Keys under which a row that is a mapping may hold its input, unless the user names one."""

LABEL_KEYS = ("label", "labels", "target", "y")
"""The same for its label."""

_COLOR_MODES = {"P", "PA", "RGBA", "CMYK", "YCbCr", "LA"}


class MapStyle(Protocol):
    """Anything with a length and numbered rows."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """Return one row: a tuple (input, label, …), or a mapping that holds both by name."""
        ...


@dataclass(frozen=True)
class RowFormat:
    """Where a row holds what, and how its arrays are laid out.

    Attributes:
        input_key: key of the input in a row that is a mapping; None: the first of `INPUT_KEYS`.
        label_key: key of the label; None: the first of `LABEL_KEYS`.
        columns: further facts to keep: keys of a mapping, or names for what follows input and
            label in a tuple.
        channels_last: whether channels are the last axis of an array or tensor; None: they are
            not, and what looks as if they were is refused.
        size: height and width that images are scaled to; None to keep them.
    """

    input_key: str | None = None
    label_key: str | None = None
    columns: tuple[str, ...] = ()
    channels_last: bool | None = None
    size: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class Table:
    """Inputs, labels as they were given, and columns, all by row."""

    inputs: Array
    labels: Array
    columns: Mapping[str, npt.NDArray[np.str_]]


def read_rows(part: MapStyle, form: RowFormat, where: str) -> Table:
    """Read all rows of a map-style data set into arrays.

    Raises:
        DataError: a row that cannot be read, or differs in shape or type from the first.
    """
    if not hasattr(part, "__len__") or not hasattr(part, "__getitem__"):
        raise DataError(
            f"{where} is {type(part).__name__}; needed: a map-style data set, with a length and "
            "numbered rows"
        )
    if len(part) == 0:
        raise DataError(f"{where} set is empty")
    if type(part) is TensorDataset and len(part.tensors) == 2 and not form.columns:
        return read_arrays(*part.tensors, {}, form, where)
    inputs, labels = [], []
    columns: dict[str, list[str]] = {name: [] for name in form.columns}
    for index in range(len(part)):
        place = f"{where} row {index}"
        given, label, *facts = _fields(part[index], form, place)
        inputs.append(_input(given, form, place))
        labels.append(_label(label, place))
        for values, fact in zip(columns.values(), facts, strict=True):
            values.append(str(fact))
    texts = {name: np.array(values, dtype=np.str_) for name, values in columns.items()}
    return Table(_stack(_same_channels(inputs), where), _stack(labels, where), texts)


def read_arrays(
    inputs: Any, labels: Any, columns: Mapping[str, Any], form: RowFormat, where: str
) -> Table:
    """Return arrays, tensors or lists of all inputs and labels as a table."""
    array = as_inputs(_array(inputs), where)
    if array.ndim > 1:
        array = _channels_first(array, form.channels_last, f"{where} inputs", skip=1)
    array = _resized(array, form.size, f"{where} inputs")
    found = _array(labels)
    if found.dtype.kind == "O" and all(isinstance(label, str) for label in found.flat):
        found = found.astype(np.str_)
    if found.dtype.kind not in "biufU":
        raise DataError(f"{where} labels are {found.dtype}; they must be numbers or names")
    texts = {name: np.asarray(values).astype(np.str_) for name, values in columns.items()}
    return Table(array, _plain_labels(found, found.ndim - 1), texts)


def as_inputs(array: Array, where: str) -> Array:
    """Return inputs in one of the types that a data set holds: uint8, float32, int32 or int64.

    Floats become float32, truth values uint8 of 0 and 255 (which a network sees as 0 and 1), and
    whole numbers other than uint8 and int32 become int64.
    """
    kind = array.dtype.kind
    if kind == "b":
        array = array.astype(np.uint8) * np.uint8(255)
    elif kind == "f":
        with np.errstate(over="ignore"):
            array = array.astype(np.float32, copy=False)
    elif kind in "iu" and array.dtype not in (np.uint8, np.int32):
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise DataError(f"{where} holds {array.max()}, which is beyond int64")
        array = array.astype(np.int64, copy=False)
    elif kind not in "iu":
        raise DataError(f"{where} holds {array.dtype}; inputs must be numbers")
    return array if array.flags.c_contiguous else array.copy()


def known_classes(part: Any, label_key: str | None) -> tuple[str, ...] | None:
    """Return the class names that a torchvision or Hugging Face data set carries, if it does."""
    while hasattr(part, "dataset") and hasattr(part, "indices"):  # torch's Subset
        part = part.dataset
    listed = getattr(part, "classes", None)
    features = getattr(part, "features", None)
    if listed is None and isinstance(features, Mapping):
        keys = LABEL_KEYS if label_key is None else (label_key,)
        key = next((key for key in keys if key in features), None)
        listed = getattr(features.get(key), "names", None)
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        return None
    return tuple(str(name) for name in listed)


def encode_labels(
    tables: Mapping[str, Table], task: Task | str | None, classes: Sequence[str] | None
) -> tuple[Task, tuple[str, ...], list[Array]]:
    """Return the task, the classes, and the labels of each table as class numbers or rows.

    Args:
        tables: the tables by the name that messages give them.
        task: the task; None: class numbers and names make it multi-class, rows multi-label.
        classes: the class names; None: the names that occur, sorted, or numbers.
    """
    kind = None if task is None else _task(task)
    parts = [table.labels for table in tables.values()]
    if kind is not Task.MULTILABEL and all(
        labels.ndim == 2 and labels.shape[1] == 1 and labels.dtype == np.int64 for labels in parts
    ):
        parts = [labels[:, 0] for labels in parts]  # as MedMNIST holds class numbers
    if all(labels.dtype.kind == "U" for labels in parts):
        names = tuple(classes or np.unique(np.concatenate([part.ravel() for part in parts])))
        parts = [_numbers(part, names, where) for part, where in zip(parts, tables, strict=True)]
        return kind or Task.MULTICLASS, tuple(str(name) for name in names), parts
    found = kind or (Task.MULTILABEL if parts[0].ndim == 2 else Task.MULTICLASS)
    if found is Task.MULTILABEL:
        parts = [part.astype(np.float32) if part.dtype.kind == "i" else part for part in parts]
    return found, tuple(classes or _numbered(found, dict(zip(tables, parts, strict=True)))), parts


def _task(task: Task | str) -> Task:
    try:
        return Task(task)
    except ValueError as error:
        raise DataError(f"unknown task {task!r}" + nearest(str(task), list(Task))) from error


def _numbers(labels: Array, classes: tuple[str, ...], where: str) -> Array:
    """Return the class numbers of class names."""
    places = {str(name): number for number, name in enumerate(classes)}
    for row, label in enumerate(labels.tolist()):
        if label not in places:
            raise DataError(f"{where} row {row}: {label!r} is not a class" + nearest(label, places))
    return np.array([places[label] for label in labels.tolist()], dtype=np.int64)


def _numbered(task: Task, parts: Mapping[str, Array]) -> tuple[str, ...]:
    if task is Task.MULTILABEL:
        number = next(iter(parts.values())).shape[-1]
    else:
        # Labels of another kind are refused later.
        whole = {where: part for where, part in parts.items() if part.dtype.kind == "i"}
        number = count_numbered_classes(whole)
    return tuple(str(label) for label in range(number))


def _fields(row: Any, form: RowFormat, place: str) -> tuple[Any, ...]:
    """Return the input, the label and the columns of a row."""
    if isinstance(row, Mapping):
        image = _key(row, form.input_key, INPUT_KEYS, place)
        label = _key(row, form.label_key, LABEL_KEYS, place)
        keys = [_key(row, name, (), place) for name in form.columns]
        return tuple(row[key] for key in (image, label, *keys))
    if isinstance(row, tuple | list) and len(row) == 2 + len(form.columns):
        return tuple(row)
    further = "".join(f", {name}" for name in form.columns)
    size = f" of {len(row)}" if isinstance(row, tuple | list) else ""
    raise DataError(
        f"{place} is {type(row).__name__}{size}; expected (input, label{further}) or a mapping; "
        "`columns` names what follows the label"
    )


def _key(row: Mapping[str, Any], asked: str | None, usual: tuple[str, ...], place: str) -> str:
    keys = usual if asked is None else (asked,)
    found = next((key for key in keys if key in row), None)
    if found is None:
        raise DataError(f"{place} has no {keys[0]!r}" + nearest(keys[0], map(str, row)))
    return found


def _array(given: Any) -> Array:
    if isinstance(given, torch.Tensor):
        given = given.detach().cpu()
        return np.asarray(given.float() if given.dtype == torch.bfloat16 else given)
    try:
        # A memory-mapped array stays one.
        return given if isinstance(given, np.memmap) else np.asarray(given)
    except ValueError as error:  # lists of different lengths
        raise DataError(f"inputs and labels must be arrays: {error}") from error


def _resized(array: Array, size: tuple[int, int] | None, where: str) -> Array:
    """Return images (N, channels, height, width) in another size."""
    if size is None:
        return array
    # Pillow takes time to import, and few need it.
    from fedbb.data.images.decode import resize_arrays

    return resize_arrays(array, size, where)


def _input(given: Any, form: RowFormat, place: str) -> Array:
    """Return one input; an image of Pillow as (channels, height, width)."""
    where = f"{place}: the input"
    if not (hasattr(given, "mode") and hasattr(given, "convert")):
        array = _channels_first(as_inputs(_array(given), where), form.channels_last, where)
        return np.asarray(_resized(array[None], form.size, where)[0])
    array = np.asarray(given.convert("RGB") if given.mode in _COLOR_MODES else given)
    if array.dtype.kind in "iu" and array.dtype != np.uint8:
        array = array.astype(np.float32)  # 16 or 32 bits deep; whole numbers would be token ids
    array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    image = as_inputs(array, f"{place}: the image")
    return np.asarray(_resized(image[None], form.size, where)[0])


def _channels_first(array: Array, last: bool | None, where: str, skip: int = 0) -> Array:
    """Move the channels of an array to the axis `skip`, if they are on its last."""
    shape = array.shape[skip:]
    if last:
        if len(shape) < 2:
            raise DataError(f"{where} of shape {shape} has no axis of channels to move")
        return np.ascontiguousarray(np.moveaxis(array, -1, skip))
    looks = len(shape) == 3 and shape[-1] in (1, 3, 4) and shape[0] > 4 and array.dtype == np.uint8
    if last is None and looks:
        raise DataError(
            f"{where} of shape {shape} looks like an image whose channels are the last axis; "
            "state channels_last=True, or False if they are not"
        )
    return array


def _label(label: Any, place: str) -> Array:
    """Return a class number or name as (), or a row of labels as (C,)."""
    array = _array(label)
    if array.ndim < 2 and array.dtype.kind in ("biuU", "biuf")[array.ndim]:
        return _plain_labels(array, array.ndim)
    raise DataError(
        f"{place}: the label {label!r} is neither a class number, a class name nor a row of 0 and 1"
    )


def _plain_labels(labels: Array, axes: int) -> Array:
    """Return class numbers as int64, rows as float32, names as they are; a label has 0 or 1 axes.

    A row of one whole number stays int64: it is a class number unless the user's task says else.
    """
    if labels.dtype.kind == "U":
        return labels
    is_number = labels.dtype.kind in "biu" and (axes == 0 or labels.shape[-1] == 1)
    return labels.astype(np.int64 if is_number else np.float32)


def _same_channels(inputs: list[Array]) -> list[Array]:
    """Return images among which some are grey and some in color all with three channels."""
    if {array.shape[0] if array.ndim == 3 else 0 for array in inputs} != {1, 3}:
        return inputs
    return [np.repeat(array, 3 // array.shape[0], axis=0) for array in inputs]


def _stack(arrays: list[Array], where: str) -> Array:
    """Join arrays of one shape and type."""
    first = arrays[0]
    for index, array in enumerate(arrays):
        same = array.dtype.kind == "U" == first.dtype.kind or array.dtype == first.dtype
        if array.shape != first.shape or not same:
            raise DataError(
                f"{where} row {index} is {array.dtype} of shape {array.shape}, row 0 is "
                f"{first.dtype} of {first.shape}; all must agree, so resize, pad or convert them"
            )
    return np.stack(arrays)
