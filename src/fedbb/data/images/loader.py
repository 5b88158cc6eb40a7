"""Data sets of image files: split by file name, then decoded; many images once, into a cache."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.files import parse_json
from fedbb.data.checks import check_dataset
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.download import making_folder
from fedbb.data.images.decode import (
    DecodedImages,
    ImageSource,
    Pixels,
    Request,
    decode_all,
    decode_images,
)
from fedbb.data.source import Source
from fedbb.data.splits import Rows
from fedbb.data.transforms import Augmentation, channel_statistics
from fedbb.errors import DataError
from fedbb.records import IntArray, Task
from fedbb.rng import stream

_FORMAT = "fedbb decoded images 1"
_CHUNK = 256

MANY = 2000
"""Data sets of image files: split by file name, then decoded; many images once, into a cache."""


@dataclass(frozen=True, eq=False)
class CachedImages(DecodedImages):
    """Images on disk, with their mean and standard deviation per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def decode_once(request: Request, cache: Path) -> CachedImages:
    """Return the images as a memory map; they are decoded unless the cache has them.

    The files' names, sizes and times are part of the key, so that changed files are decoded again.
    """
    folder = cache / fingerprint(request)
    if not folder.exists():
        with making_folder(folder) as fresh:
            if fresh is not None:
                _write_cache(request, fresh)
    return _read_cache(folder, request.names)


def fingerprint(request: Request) -> str:
    """Return the key of a request in the cache."""
    digest = hashlib.sha256(
        f"{_FORMAT} {astuple(request.source.format)} {request.source.unreadable}".encode()
    )
    for stamp in request.source.archive.stamps(request.names):
        digest.update(f"\n{stamp}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


def _write_cache(request: Request, folder: Path) -> None:
    skipped = _write_images(request, folder / "images.npy")
    mean, std = channel_statistics(_open(folder / "images.npy"))
    facts = {"skipped": skipped, "mean": mean, "std": std}
    (folder / "facts.json").write_text(json.dumps(facts), "utf-8")


def _write_images(request: Request, path: Path) -> list[int]:
    """Write all images in the order of their rows; return the rows that were skipped."""
    skipped: list[int] = []
    start = 0
    # Written, not mapped: a full disk is then an error to report, where a map would kill Python.
    with path.open("w+b") as file:
        for row, image in decode_images(request, skipped):
            start = start or _write_header(file, (len(request.names), *image.shape))
            file.seek(start + row * image.nbytes)
            file.write(image.tobytes())
        file.flush()
        os.fsync(file.fileno())
    if skipped:
        _close_gaps(path, _remaining(len(request.names), skipped))
    return sorted(skipped)


def _write_header(file: Any, shape: tuple[int, ...]) -> int:
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return int(file.tell())


def _close_gaps(path: Path, rows: IntArray) -> None:
    """Keep the images of these rows only."""
    whole = path.with_name("whole.npy")
    # The last row may never have been written, so the file is as long as its header says only now.
    _lengthen(path.replace(whole))
    images = _open(whole)
    with path.open("wb") as file:
        _write_header(file, (len(rows), *images.shape[1:]))
        for start in range(0, len(rows), _CHUNK):
            file.write(images[rows[start : start + _CHUNK]].tobytes())
        file.flush()
        os.fsync(file.fileno())
    whole.unlink()


def _lengthen(path: Path) -> None:
    with path.open("r+b") as file:
        np.lib.format.read_magic(file)
        shape, _, _ = np.lib.format.read_array_header_1_0(file)
        file.truncate(file.tell() + int(np.prod(shape)))


def _remaining(number: int, skipped: list[int]) -> IntArray:
    return np.setdiff1d(np.arange(number, dtype=np.int64), skipped)


def _read_cache(folder: Path, names: tuple[str, ...]) -> CachedImages:
    images = _open(folder / "images.npy")
    try:
        facts = parse_json((folder / "facts.json").read_text("utf-8"))
        rows = _remaining(len(names), facts["skipped"])
        skipped = tuple(names[row] for row in facts["skipped"])
        mean, std = tuple(facts["mean"]), tuple(facts["std"])
        if len(rows) != len(images):
            raise ValueError(f"{len(images)} images for {len(rows)} rows")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder} is damaged: {error}; delete it, it is rebuilt") from error
    return CachedImages(images, rows, skipped, mean, std)


def _open(path: Path) -> Pixels:
    try:
        images: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}; delete its folder") from error
    return images


@dataclass(frozen=True, eq=False)
class NamedExamples:
    """Labelled images that are not decoded yet: `names` are their files in an archive.

    Labels and columns are those of `Examples`. A split of names reads no pixel.
    """

    names: npt.NDArray[np.str_]
    labels: npt.NDArray[Any]
    columns: Mapping[str, npt.NDArray[np.str_]]

    def __len__(self) -> int:
        return len(self.names)

    def take(self, indices: IntArray) -> NamedExamples:
        """Return the examples at these places, in this order."""
        columns = {name: values[indices] for name, values in self.columns.items()}
        return NamedExamples(self.names[indices], self.labels[indices], columns)


@dataclass(frozen=True, eq=False)
class NamedSplit:
    """Training and test examples by file name, and notes for the log of a run.

    `place` returns, for messages, where the user named a file.
    """

    task: Task
    classes: tuple[str, ...]
    train: NamedExamples
    test: NamedExamples
    notes: tuple[str, ...] = ()
    place: Callable[[str], str] | None = None


def name_examples(
    names: Sequence[str], labels: npt.NDArray[Any], columns: Mapping[str, Sequence[str]]
) -> NamedExamples:
    """Return examples of lists of file names and column values."""
    texts = {name: np.array(values, dtype=np.str_) for name, values in columns.items()}
    return NamedExamples(np.array(names, dtype=np.str_), labels, texts)


def load_images(request: Request, source: Source) -> DecodedImages:
    """Decode the images of a request; many of them only once, into the cache."""
    request = replace(request, progress=source.progress)
    if len(request.names) < MANY:
        return decode_all(request)
    return decode_once(request, source.image_cache)


def load_split(
    split: NamedSplit, images: ImageSource, source: Source, augmentation: Augmentation | None = None
) -> Dataset:
    """Return the data set with its images decoded, and the statistics of the training ones."""
    train, trained = _load_part(split, "training", images, source)
    test, tested = _load_part(split, "test", images, source)
    dataset = Dataset(
        source.name,
        split.task,
        split.classes,
        train,
        test,
        trained.mean,
        trained.std,
        augmentation or Augmentation(),
        (*split.notes, *trained.notes(), *tested.notes()),
    )
    return check_dataset(dataset)


def _load_part(
    split: NamedSplit, part: str, images: ImageSource, source: Source
) -> tuple[Examples, CachedImages]:
    examples = split.train if part == "training" else split.test
    if len(examples) == 0:
        raise DataError(f"{source.name} data: {images.archive.path} has no {part} images")
    names, place = tuple(examples.names.tolist()), split.place
    find = None if place is None else lambda row: place(names[row])
    request = Request(images, names, find, source.progress)
    decoded = decode_once(request, source.image_cache)
    if len(decoded.rows) < len(examples):
        examples = examples.take(decoded.rows)
    return Examples(decoded.images, examples.labels, examples.columns), decoded


def cap(examples: Rows, number: int | None, source: Source, option: str) -> Rows:
    """Return at most `number` examples, drawn by the data's seed, in their old order."""
    if number is None or number >= len(examples):
        return examples
    if number < 1:
        raise DataError(f"{source.name} data: {option} is {number}; it must be at least 1")
    rng = stream(source.seed, source.name, option)
    return examples.take(np.sort(rng.choice(len(examples), size=number, replace=False)))
