"""Tiny-ImageNet: color images of 64 × 64 pixels, from its folder or an archive of it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from fedbb._util.files import parse_json
from fedbb.data.dataset import Dataset
from fedbb.data.download import Downloader, Progress, RemoteFile, download, replacing, sha256_of
from fedbb.data.images.archive import Archive, open_archive, read_text
from fedbb.data.images.decode import ImageFormat, ImageSource, Unreadable
from fedbb.data.images.loader import NamedExamples, NamedSplit, load_split, name_examples
from fedbb.data.source import Source, read_options
from fedbb.data.transforms import Augmentation
from fedbb.errors import DataError
from fedbb.records import Task

OFFICIAL = RemoteFile(
    "tiny-imagenet-200.zip",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    248100043,
    "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
)

_ARCHIVE, _FACTS = "archive", "archive.json"
_CLASS_LIST = "wnids.txt"


@dataclass(frozen=True)
class TinyImageNetOptions:
    """How to read the images.

    Attributes:
        size: height and width, scaled by the mean of the pixels covered; None keeps 64.
        unreadable: whether unreadable images are refused or skipped.
    """

    size: int | None = None
    unreadable: Unreadable = "refuse"


def load(source: Source) -> Dataset:
    """Return the data set; `val`, whose labels are public, is its test part."""
    options = read_options(TinyImageNetOptions, source)
    if options.size is not None and options.size < 1:
        raise DataError(f"{source.name} data: size is {options.size}; it must be at least 1")
    archive = open_archive(source.path or stored_archive(source))
    size = None if options.size is None else (options.size, options.size)
    images = ImageSource(archive, ImageFormat(3, size, "box"), options.unreadable)
    return load_split(list_images(archive), images, source, Augmentation(crop=4, flip=True))


def list_images(archive: Archive) -> NamedSplit:
    """Return the names of all images with their classes, in alphabetical order of both."""
    names = archive.names()
    root = _root(names, archive.path)
    wnids = sorted(set(read_text(archive, f"{root}{_CLASS_LIST}").split()))
    if not wnids:
        raise DataError(f"{archive.path}: {root}{_CLASS_LIST} names no class")
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    train = _training(names, root, numbers)
    present = set(train.labels.tolist())
    absent = [wnid for wnid in wnids if numbers[wnid] not in present]
    if absent:
        raise DataError(
            f"{archive.path}: no training images of {absent[0]}, which {_CLASS_LIST} names; "
            f"expected {root}train/{absent[0]}/images/*.JPEG ({len(absent)} such classes)"
        )
    test = _annotated(archive, root, numbers)
    return NamedSplit(Task.MULTICLASS, _titles(archive, names, root, wnids), train, test)


def _root(names: list[str], path: Path) -> str:
    """Return the folder that holds the layout, such as "tiny-imagenet-200/"."""
    found = [name for name in names if PurePosixPath(name).name == _CLASS_LIST]
    if not found:
        raise DataError(
            f"{path} is not in the layout of Tiny-ImageNet: it has no {_CLASS_LIST} (beside "
            "train/, val/images/ and val/val_annotations.txt)"
        )
    return min(found, key=len).removesuffix(_CLASS_LIST)


def _training(names: list[str], root: str, numbers: dict[str, int]) -> NamedExamples:
    """Return the files train/<wnid>/images/* of known classes."""
    found = []
    for name in names:
        match name.removeprefix(root).split("/"):
            case ["train", wnid, "images", file] if wnid in numbers and not file.startswith("."):
                found.append((numbers[wnid], name))
    found.sort()
    labels = np.array([number for number, _ in found], dtype=np.int64)
    return name_examples([name for _, name in found], labels, {})


def _annotated(archive: Archive, root: str, numbers: dict[str, int]) -> NamedExamples:
    """Return the images of val/ whose classes are known, as val_annotations.txt says."""
    place = f"{root}val/val_annotations.txt"
    found = []
    first: dict[str, int] = {}
    for line, text in enumerate(read_text(archive, place).splitlines(), start=1):
        file, _, more = text.partition("\t")
        where = f"{archive.path}: {place} line {line}"
        if text.strip() and (not more or PurePosixPath(file.strip()).name != file.strip()):
            raise DataError(f"{where} is {text!r}; expected file, class")
        if (wnid := more.partition("\t")[0].strip()) in numbers:
            if first.setdefault(file, line) != line:
                raise DataError(f"{where}: {file} is on line {first[file]} too")
            found.append((numbers[wnid], f"{root}val/images/{file.strip()}"))
    found.sort()
    labels = np.array([number for number, _ in found], dtype=np.int64)
    return name_examples([name for _, name in found], labels, {})


def _titles(archive: Archive, names: list[str], root: str, wnids: list[str]) -> tuple[str, ...]:
    """Return the first word of each class in words.txt, or its WordNet id if that is not unique."""
    if f"{root}words.txt" not in names:
        return tuple(wnids)
    words = dict.fromkeys(wnids, "")
    for line in read_text(archive, f"{root}words.txt").splitlines():
        wnid, _, title = line.partition("\t")
        if wnid in words:
            words[wnid] = title.split(",")[0].strip()
    often = Counter(words.values())
    return tuple(word if word and often[word] == 1 else wnid for wnid, word in words.items())


def stored_archive(source: Source) -> Path:
    """Return the archive in the cache folder, or DataError if there is none."""
    if not _held(source.folder):
        raise DataError(
            f"{source.name} is not in {source.folder}; get it with `fedbb data get {source.name}`, "
            "which also takes a local archive, or set the path to its folder"
        )
    return source.folder / _ARCHIVE


def _held(folder: Path) -> list[Path]:
    paths = [folder / _ARCHIVE, folder / _FACTS]
    return paths if all(path.is_file() for path in paths) else []


def _get(folder: Path, local: Path | None, progress: Progress | None) -> None:
    """Accept any local archive in the layout; a download must be the official one."""
    if local is not None and local.is_dir():
        raise DataError(
            f"{local} is a folder, which need not be copied: name it as the path of the data. "
            "Only a .zip or .tar.gz is copied"
        )
    path = local or download(OFFICIAL, folder, progress)
    list_images(open_archive(path))
    (folder / _FACTS).unlink(missing_ok=True)
    _copy(path, folder / _ARCHIVE)
    facts = {"name": path.name, "sha256": sha256_of(folder / _ARCHIVE)}
    with replacing(folder / _FACTS) as file:
        file.write(json.dumps(facts).encode())
    if local is None:
        path.unlink()


def _copy(path: Path, target: Path) -> None:
    try:
        with path.open("rb") as file, replacing(target) as out:
            shutil.copyfileobj(file, out, 1 << 20)
    except OSError as error:
        raise DataError(f"cannot copy {path}: {error.strerror or error}") from error


def _check(folder: Path) -> None:
    try:
        expected = parse_json((folder / _FACTS).read_bytes())["sha256"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder / _FACTS} is damaged: {error}; get the data again") from error
    found = sha256_of(folder / _ARCHIVE)
    if found != expected:
        raise DataError(
            f"{folder / _ARCHIVE} is damaged: its SHA-256 is {found}, expected {expected}"
        )


DOWNLOADER = Downloader(_held, _get, _check)
