"""Examples whose images are at first only named: divided by name, then decoded side by side.

Until then `Examples.images` holds the names of files, so that a split costs no pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.data.check import check_dataset
from fedbb.data.dataset import Augmentation, Dataset, Examples
from fedbb.data.images.archive import Bundle
from fedbb.data.images.cache import Decoded, decode_once
from fedbb.data.images.decode import Form
from fedbb.data.images.loader import Request, Unreadable
from fedbb.data.source import Source
from fedbb.errors import DataError
from fedbb.records import Task
from fedbb.rng import stream


@dataclass(frozen=True)
class Reading:
    """Where the named images are, and how they are read."""

    bundle: Bundle
    form: Form
    unreadable: Unreadable


@dataclass(frozen=True, eq=False)
class Parts:
    """Training and test examples whose images are names, and what the log should say of them."""

    task: Task
    classes: tuple[str, ...]
    train: Examples
    test: Examples
    notes: tuple[str, ...] = ()


def name_examples(
    names: Sequence[str], labels: npt.NDArray[Any], columns: dict[str, list[str]]
) -> Examples:
    """Return examples whose images are names."""
    texts = {name: np.array(values, dtype=np.str_) for name, values in columns.items()}
    return Examples(np.array(names, dtype=np.str_), labels, texts)


def read_parts(
    parts: Parts, reading: Reading, source: Source, augmentation: Augmentation | None = None
) -> Dataset:
    """Return the data set with its images decoded, by mean and spread of the training ones."""
    train, gallery = _read(parts.train, reading, source, "training")
    test, tested = _read(parts.test, reading, source, "test")
    dataset = Dataset(
        source.name,
        parts.task,
        parts.classes,
        train,
        test,
        gallery.mean,
        gallery.std,
        augmentation or Augmentation(),
        (*parts.notes, *gallery.notes(), *tested.notes()),
    )
    return check_dataset(dataset)


def _read(
    examples: Examples, reading: Reading, source: Source, part: str
) -> tuple[Examples, Decoded]:
    if len(examples) == 0:
        raise DataError(f"{source.name} data: {reading.bundle.path} has no {part} images")
    request = Request(
        reading.bundle,
        tuple(examples.images.tolist()),
        reading.form,
        reading.unreadable,
        progress=source.progress,
    )
    gallery = decode_once(request, source.decoded)
    if len(gallery.rows) < len(examples):
        examples = examples.take(gallery.rows)
    return replace(examples, images=gallery.images), gallery


def cap(examples: Examples, number: int | None, source: Source, option: str) -> Examples:
    """Return so many of the examples, drawn by the data's seed, in their old order."""
    if number is None or number >= len(examples):
        return examples
    if number < 1:
        raise DataError(f"{source.name} data: {option} is {number}; it must be at least 1")
    rng = stream(source.seed, source.name, option)
    return examples.take(np.sort(rng.choice(len(examples), size=number, replace=False)))
