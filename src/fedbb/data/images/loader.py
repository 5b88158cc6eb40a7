"""Data sets of image files: split by file name first, then decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.data.dataset import Dataset, Examples, check_dataset
from fedbb.data.images.cache import CachedImages, decode_once
from fedbb.data.images.decode import DecodedImages, ImageSource, Request, decode_all
from fedbb.data.source import Source
from fedbb.data.splits import Rows
from fedbb.data.transforms import Augmentation
from fedbb.errors import DataError
from fedbb.records import IntArray, Task
from fedbb.rng import stream

MANY = 2000
"""From this number of images on, decoded ones are kept in the cache folder."""


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
