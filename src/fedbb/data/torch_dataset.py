"""Adapter for data sets of torchvision, Hugging Face and torch: read row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from fedbb._util.names import nearest
from fedbb.data.dataset import Dataset, Examples, assemble
from fedbb.data.transforms import as_pixels
from fedbb.errors import DataError
from fedbb.records import Task


class MapStyle(Protocol):
    """Anything with a length and numbered rows."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """Return one row: a pair (image, label), or a mapping that holds both by name."""
        ...


@dataclass(frozen=True)
class Keys:
    """Names in a row that is a mapping.

    Attributes:
        image: name of the image.
        label: name of the label.
        columns: names of further facts to keep, such as the site.
    """

    image: str = "image"
    label: str = "label"
    columns: tuple[str, ...] = ()


def from_map_style(
    train: MapStyle,
    test: MapStyle,
    *,
    name: str,
    task: Task | str,
    classes: tuple[str, ...] | None = None,
    keys: Keys | None = None,
) -> Dataset:
    """Read a data set of torchvision, Hugging Face or torch into memory.

    A row is (image, label) or a mapping. Images are Pillow's, arrays (height, width) or (height,
    width, channels), or tensors (channels, height, width), all of one size. Labels are class
    numbers or names, or for a multi-label task rows of 0, 1 and NaN. Rows are read once, so leave
    out random transforms.

    Args:
        train: training rows: anything with a length and numbered rows.
        test: test rows.
        name: name of the data set.
        task: "multiclass" or "multilabel".
        classes: names of the classes; by default those that `train` carries, else numbers.
        keys: names of image, label and further columns in rows that are mappings.

    Returns:
        The data set, checked, with the mean and standard deviation of its training images.

    Raises:
        DataError: rows that cannot be read or do not fit together; the message names the row.
    """
    names = keys or Keys()
    kind = _task(task)
    known = classes or _known_classes(train, names)
    parts = [
        _read(part, names, known, f"{name} {side}")
        for side, part in (("train", train), ("test", test))
    ]
    return assemble(name, kind, known or _numbered(kind, parts), parts[0], parts[1])


def _task(task: Task | str) -> Task:
    try:
        return Task(task)
    except ValueError as error:
        raise DataError(f"unknown task {task!r}" + nearest(str(task), list(Task))) from error


def _known_classes(part: MapStyle, keys: Keys) -> tuple[str, ...] | None:
    """Return the class names a torchvision or Hugging Face data set carries, if it does."""
    listed = getattr(part, "classes", None)
    features = getattr(part, "features", None)
    if listed is None and isinstance(features, Mapping) and keys.label in features:
        listed = getattr(features[keys.label], "names", None)
    return tuple(str(name) for name in listed) if listed is not None else None


def _numbered(task: Task, parts: list[Examples]) -> tuple[str, ...]:
    labels = parts[0].labels
    if task is Task.MULTILABEL:
        return tuple(str(number) for number in range(labels.shape[-1]))
    highest = max(int(part.labels.max(initial=0)) for part in parts)
    return tuple(str(number) for number in range(highest + 1))


def _read(part: MapStyle, keys: Keys, classes: tuple[str, ...] | None, where: str) -> Examples:
    if len(part) == 0:
        raise DataError(f"{where} set is empty")
    images, labels = [], []
    columns: dict[str, list[str]] = {name: [] for name in keys.columns}
    for index in range(len(part)):
        place = f"{where} row {index}"
        row = _fields(part[index], keys, place)
        images.append(_image(row[keys.image], place))
        labels.append(_label(row[keys.label], classes, place))
        for name, values in columns.items():
            values.append(str(row[name]))
    texts = {name: np.array(values) for name, values in columns.items()}
    return Examples(_stack(images, where), _stack(labels, where), texts)


def _fields(row: Any, keys: Keys, place: str) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        for name in (keys.image, keys.label, *keys.columns):
            if name not in row:
                raise DataError(f"{place} has no {name!r}" + nearest(name, map(str, row)))
        return row
    if isinstance(row, tuple | list) and len(row) == 2 and not keys.columns:
        return {keys.image: row[0], keys.label: row[1]}
    raise DataError(
        f"{place} is {type(row).__name__}; expected a pair (image, label) or a mapping"
        + (f" with {', '.join(keys.columns)}" if keys.columns else "")
    )


def _image(image: Any, place: str) -> npt.NDArray[Any]:
    """Return an image as (channels, height, width)."""
    is_tensor = isinstance(image, torch.Tensor)
    array = image.detach().cpu().numpy() if is_tensor else np.asarray(_plain(image))
    if array.ndim == 2:
        array = array[None]
    elif array.ndim == 3 and not is_tensor:
        array = array.transpose(2, 0, 1)
    if array.ndim != 3 or array.shape[0] not in (1, 3):
        raise DataError(f"{place}: an image of shape {np.shape(image)} has not 1 or 3 channels")
    return as_pixels(array, f"{place}: the image")


def _plain(image: Any) -> Any:
    """Return Pillow's palettes, transparency and the like as plain color, all else as it is."""
    mode = getattr(image, "mode", None)
    return image.convert("RGB") if mode in {"P", "PA", "RGBA", "CMYK", "YCbCr", "LA"} else image


def _label(label: Any, classes: tuple[str, ...] | None, place: str) -> npt.NDArray[Any]:
    """Return a class number as () int64, or a row of labels as (C,) float32."""
    if isinstance(label, str):
        if label not in (classes or ()):
            raise DataError(f"{place}: {label!r} is no class" + nearest(label, classes or ()))
        return np.array((classes or ()).index(label), dtype=np.int64)
    array = np.asarray(label.cpu() if isinstance(label, torch.Tensor) else label)
    if array.ndim == 0 and array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.ndim == 1 and array.dtype.kind in "biuf":
        return array.astype(np.float32)
    raise DataError(f"{place}: the label {label!r} is no class number and no row of 0 and 1")


def _stack(arrays: list[npt.NDArray[Any]], where: str) -> npt.NDArray[Any]:
    """Join arrays of one shape and type; grey images among color ones get three channels."""
    if {array.shape[0] for array in arrays if array.ndim == 3} == {1, 3}:
        arrays = [np.repeat(array, 3 // array.shape[0], axis=0) for array in arrays]
    for index, array in enumerate(arrays):
        if array.shape != arrays[0].shape or array.dtype != arrays[0].dtype:
            raise DataError(
                f"{where} row {index} is {array.dtype} of shape {array.shape}, "
                f"row 0 is {arrays[0].dtype} of {arrays[0].shape}; all must agree"
            )
    return np.stack(arrays)
