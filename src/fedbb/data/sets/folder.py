"""Images in one folder for each class, as torchvision's ImageFolder reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from fedbb._util.names import nearest
from fedbb.data.dataset import Dataset, assemble
from fedbb.data.examples import Examples
from fedbb.data.images.archive import Archive, open_archive
from fedbb.data.images.decode import (
    IMAGE_FORMATS,
    ImageFormat,
    ImageSource,
    Request,
    Size,
    Unreadable,
    as_size,
)
from fedbb.data.images.loader import load_images
from fedbb.data.source import Source, read_options
from fedbb.data.splits import VALIDATION, split_by_share
from fedbb.errors import DataError
from fedbb.records import Task

ENDINGS = tuple(ending for endings in IMAGE_FORMATS.values() for ending in endings)


@dataclass(frozen=True)
class FolderOptions:
    """How to read the images of class folders.

    Attributes:
        size: height and width, or one number for both; without it all images must agree.
        channels: 1 for grey, 3 for color.
        classes: names of the classes in order; by default all folders in alphabetical order.
        test_share: share of test images, if there are no folders train and test.
        unreadable: whether unreadable images are refused or skipped.
    """

    size: Size = None
    channels: Literal[1, 3] = 3
    classes: tuple[str, ...] = ()
    test_share: float = 0.2
    unreadable: Unreadable = "refuse"


@dataclass(frozen=True)
class _File:
    """An image file: its path in the folder or archive, its part, and its class."""

    name: str
    part: str
    label: str


def load(source: Source) -> Dataset:
    """Return the data set of a folder, .zip or .tar archive of images."""
    options = read_options(FolderOptions, source)
    if source.path is None:
        raise DataError(f"{source.name} data needs a path: the folder that holds the class folders")
    archive = open_archive(source.path)
    files = _find(archive, source.path)
    classes = options.classes or tuple(sorted({file.label for file in files}))
    number = {label: place for place, label in enumerate(classes)}
    for file in files:
        if file.label not in number:
            raise DataError(
                f"{source.path}: {file.name} is in the folder {file.label!r}, which is not a class"
                + nearest(file.label, classes)
            )
    format_ = ImageFormat(options.channels, as_size(options.size, source.name))
    images = ImageSource(archive, format_, options.unreadable)
    decoded = load_images(Request(images, tuple(file.name for file in files)), source)
    kept = [files[row] for row in decoded.rows]
    labels = np.array([number[file.label] for file in kept], dtype=np.int64)
    columns = {"file": np.array([file.name for file in kept], dtype=np.str_)}
    parts = _divide(Examples(decoded.images, labels, columns), kept, options, source)
    dataset = assemble(source.path.stem, Task.MULTICLASS, classes, *parts)
    return replace(dataset, notes=decoded.notes())


def _find(archive: Archive, path: Path) -> list[_File]:
    """Return the image files, sorted by part and name; other files are left alone."""
    found = [PurePosixPath(name) for name in sorted(archive.names())]
    images = [name for name in found if name.suffix.lower() in ENDINGS]
    hidden = [name for name in images if not any(part.startswith(".") for part in name.parts)]
    files = [_place(name) for name in _below_common(hidden)]
    if not files:
        raise DataError(
            f"{path} holds no images in class folders, such as cat/1.png or train/cat/1.png; read "
            f"are {', '.join(ENDINGS)}"
        )
    for file in files:
        if not file.label:
            raise DataError(f"{path}: {file.name} is in no class folder")
    parts = {file.part for file in files}
    if "" in parts and len(parts) > 1:
        loose = next(file for file in files if not file.part)
        raise DataError(
            f"{path}: {loose.name} is outside of the folders train and test that are there too"
        )
    return files


def _below_common(names: list[PurePosixPath]) -> list[tuple[PurePosixPath, tuple[str, ...]]]:
    """Return each path with its parts below a folder that holds all of them, as archives have."""
    start = 0
    while names and all(len(name.parts) > start + 2 for name in names):
        tops = {name.parts[start] for name in names}
        if len(tops) > 1 or _part(next(iter(tops))):
            break
        start += 1
    return [(name, name.parts[start:]) for name in names]


def _place(found: tuple[PurePosixPath, tuple[str, ...]]) -> _File:
    name, parts = found
    part = _part(parts[0]) if len(parts) > 1 else ""
    folders = parts[1:-1] if part else parts[:-1]
    return _File(str(name), part, folders[0] if folders else "")


def _part(folder: str) -> str:
    """Return the part of the data that a folder's name stands for, or an empty text."""
    lower = folder.lower()
    if lower in ("train", "test"):
        return lower
    return "validation" if lower in VALIDATION else ""


def _divide(
    examples: Examples, files: list[_File], options: FolderOptions, source: Source
) -> tuple[Examples, Examples, Examples | None]:
    """Return (train, test, validation) by the parts of the files, or by a share."""
    rows: dict[str, list[int]] = {}
    for row, file in enumerate(files):
        rows.setdefault(file.part, []).append(row)
    if "" in rows:
        return *split_by_share(examples, options.test_share, None, source.seed), None
    parts = {part: examples.take(np.array(places)) for part, places in rows.items()}
    if "train" not in parts:
        raise DataError(f"{source.path} has the folders {', '.join(sorted(parts))} but no train")
    if "test" in parts:
        return parts["train"], parts["test"], parts.get("validation")
    if "validation" in parts:  # as ImageNet and many others have it
        return parts["train"], parts["validation"], None
    return *split_by_share(parts["train"], options.test_share, None, source.seed), None
