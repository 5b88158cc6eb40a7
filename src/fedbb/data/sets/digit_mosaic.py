"""Multi-label images: two by two real digits, or gaps, with common and rare labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbb.data.dataset import Dataset, Examples
from fedbb.data.sets.digits import CLASSES, split_digits
from fedbb.data.source import Source, read_options
from fedbb.data.transforms import channel_statistics
from fedbb.errors import DataError
from fedbb.records import FloatArray, IntArray, Task
from fedbb.rng import stream

COMMONEST, RAREST = 0.5, 0.03
"""Expected share of images that hold a 0, and a 9; the shares between fall geometrically."""

_CELL, _CELLS, _SHIFT, _NOISE = 8, 4, 1, 16.0
_GAP = len(CLASSES)


@dataclass(frozen=True)
class MosaicOptions:
    """How many mosaics to make.

    Attributes:
        train: number of training images.
        test: number of test images.
    """

    train: int = 3000
    test: int = 1000


def load(source: Source) -> Dataset:
    """Return seeded mosaics of 16 × 16 pixels; train and test are made of disjoint digits."""
    options = read_options(MosaicOptions, source)
    if min(options.train, options.test) < 1:
        raise DataError(f"{source.name} data: train and test must be at least 1; got {options}")
    train_digits, test_digits = split_digits()
    train = _mosaics(train_digits, options.train, stream(source.seed, source.name, "train"))
    test = _mosaics(test_digits, options.test, stream(source.seed, source.name, "test"))
    mean, std = channel_statistics(train.inputs)
    return Dataset(source.name, Task.MULTILABEL, CLASSES, train, test, mean, std)


def cell_shares() -> FloatArray:
    """Return how often one cell shows each digit, and last how often it is a gap.

    A digit of share p is in some of the four cells with the prevalence 1 − (1 − p)⁴.
    """
    steps = np.arange(len(CLASSES)) / (len(CLASSES) - 1)
    prevalence = COMMONEST * (RAREST / COMMONEST) ** steps
    shares = 1 - (1 - prevalence) ** (1 / _CELLS)
    return np.append(shares, 1 - shares.sum())


def _mosaics(digits: Examples, number: int, rng: np.random.Generator) -> Examples:
    shown = rng.choice(_GAP + 1, size=(number, _CELLS), p=cell_shares())
    labels = (shown[:, :, None] == np.arange(len(CLASSES))).any(axis=1).astype(np.float32)
    canvas = np.zeros((number, 2 * _CELL + 2 * _SHIFT, 2 * _CELL + 2 * _SHIFT))
    for cell in range(_CELLS):
        tiles = _pick(digits, shown[:, cell], rng)
        _place(canvas, tiles, cell, rng.integers(0, 2 * _SHIFT + 1, size=(number, 2)))
    images = canvas[:, None, _SHIFT:-_SHIFT, _SHIFT:-_SHIFT]
    noisy = np.rint(images + rng.normal(0, _NOISE, size=images.shape))
    return Examples(noisy.clip(0, 255).astype(np.uint8), labels)


def _pick(digits: Examples, shown: IntArray, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return one real digit of each asked class, black for a gap."""
    tiles = np.zeros((len(shown), _CELL, _CELL), dtype=np.uint8)
    for label in range(_GAP):
        places = np.flatnonzero(shown == label)
        chosen = rng.choice(np.flatnonzero(digits.labels == label), size=len(places))
        tiles[places] = digits.inputs[chosen, 0]
    return tiles


def _place(canvas: FloatArray, tiles: npt.NDArray[np.uint8], cell: int, shifts: IntArray) -> None:
    """Draw each tile into a cell of its canvas, moved by its shift; the brighter pixel stays."""
    corner = np.array([cell // 2, cell % 2]) * _CELL + shifts
    steps = np.arange(_CELL)
    image = np.arange(len(canvas))[:, None, None]
    rows = (corner[:, :1] + steps)[:, :, None]
    columns = (corner[:, 1:] + steps)[:, None, :]
    canvas[image, rows, columns] = np.maximum(canvas[image, rows, columns], tiles)
