"""CIFAR-100: 50,000 + 10,000 color images of 32 × 32 pixels in 100 fine classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fedbb.data.dataset import Augmentation, Dataset, Examples
from fedbb.data.download import Progress, RemoteFile, Supply, download
from fedbb.data.files import replacing
from fedbb.data.options import NoOptions, read_options
from fedbb.data.sets.cifar import (
    Archive,
    decode,
    decoded_paths,
    fingerprint,
    open_decoded,
    read_decoded,
)
from fedbb.data.sets.cifar_archive import CIFAR100, read_class_names, read_pickled
from fedbb.data.source import Source
from fedbb.errors import DataError
from fedbb.records import Task

MEAN = (0.5071, 0.4865, 0.4409)
STD = (0.2673, 0.2564, 0.2762)
OFFICIAL = RemoteFile(
    "cifar-100-python.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    169001437,
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
)
SIZES = {"train": 500, "test": 100}
"""How many images of each class the two parts hold."""

_FACTS = "facts.json"


def load(source: Source) -> Dataset:
    """Return the data set as memory maps, decoding the archive at the path if there are none."""
    read_options(NoOptions, source)
    if not _held(source.folder):
        if source.path is None:
            raise DataError(
                f"{source.name} is not in {source.folder}; get it with `fedbb data get "
                f"{source.name}`, which also takes a local archive"
            )
        _decode(source.path, source.folder)
    classes = _facts(source.folder)["classes"]
    train, test = read_decoded(source.folder, len(classes))
    augmentation = Augmentation(crop=4, flip=True)
    return Dataset(
        source.name, Task.MULTICLASS, tuple(classes), train, test, MEAN, STD, augmentation
    )


def _decode(path: Path, folder: Path) -> None:
    """Write the arrays of the official archive, and last what they should be, for the check."""
    known = Archive(
        "the official archive", OFFICIAL.sha256, lambda file: read_pickled(file, CIFAR100)
    )
    (folder / _FACTS).unlink(missing_ok=True)
    decode(path, folder, (known,))
    classes = read_class_names(path, "cifar-100-python/meta", b"fine_label_names")
    for part, examples in zip(SIZES, read_decoded(folder, len(classes)), strict=True):
        _check_sizes(examples, len(classes), part, path)
    prints = [fingerprint(open_decoded(array)) for array in decoded_paths(folder)]
    with replacing(folder / _FACTS) as file:
        file.write(json.dumps({"classes": classes, "sha256": prints}).encode())


def _check_sizes(examples: Examples, classes: int, part: str, path: Path) -> None:
    sizes = np.bincount(examples.labels, minlength=classes)
    if (sizes != SIZES[part]).any():
        odd = int(np.argmax(sizes != SIZES[part]))
        raise DataError(
            f"{path}: {part} has {sizes[odd]} images of class {odd}; expected {SIZES[part]}"
        )


def _facts(folder: Path) -> dict[str, list[str]]:
    try:
        facts = json.loads((folder / _FACTS).read_bytes())
        return {key: list(facts[key]) for key in ("classes", "sha256")}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder / _FACTS} is damaged: {error}; get the data again") from error


def _held(folder: Path) -> list[Path]:
    paths = [*decoded_paths(folder), folder / _FACTS]
    return paths if all(path.is_file() for path in paths) else []


def _get(folder: Path, local: Path | None, progress: Progress | None) -> None:
    _decode(local or download(OFFICIAL, folder, progress), folder)
    if local is None:
        (folder / OFFICIAL.name).unlink()


def _check(folder: Path) -> None:
    for path, expected in zip(decoded_paths(folder), _facts(folder)["sha256"], strict=True):
        found = fingerprint(open_decoded(path))
        if found != expected:
            raise DataError(f"{path} is damaged: its SHA-256 is {found}, expected {expected}")


SUPPLY = Supply(_held, _get, _check)
