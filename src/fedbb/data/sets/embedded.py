"""Data sets that ship inside scikit-learn: digits, mosaics of digits, and breast cancer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbb.data.dataset import Dataset
from fedbb.data.examples import Examples
from fedbb.data.source import NoOptions, Source, read_options
from fedbb.data.tabular import ColumnTable, FeatureColumns, TableFormat, fit_encoder
from fedbb.data.transforms import channel_statistics
from fedbb.errors import DataError
from fedbb.records import FloatArray, IntArray, Task
from fedbb.rng import stream

CLASSES = tuple("0123456789")

_TEST_SHARE = 0.2


def load_digits(source: Source) -> Dataset:
    """Return the digits, a fifth of each class for testing."""
    read_options(NoOptions, source)
    train, test = split_digits()
    mean, std = channel_statistics(train.inputs)
    return Dataset(source.name, Task.MULTICLASS, CLASSES, train, test, mean, std)


def split_digits() -> tuple[Examples, Examples]:
    """Return (train, test), the same for every seed of a run, so that all scores are comparable."""
    # scikit-learn takes a second to import, which naming a data set should not cost.
    from sklearn import datasets

    bunch = datasets.load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    return hold_out_each_class(Examples(images, bunch.target.astype(np.int64)), "digits")


def hold_out_each_class(examples: Examples, name: str) -> tuple[Examples, Examples]:
    """Return (train, test): the same share of each class is held out, for every seed of a run."""
    rng = stream(0, name, "split")
    labels = examples.labels
    places = [rng.permutation(np.flatnonzero(labels == label)) for label in range(labels.max() + 1)]
    is_test = np.zeros(len(examples), dtype=bool)
    for place in places:
        is_test[place[: round(_TEST_SHARE * len(place))]] = True
    return examples.take(np.flatnonzero(~is_test)), examples.take(np.flatnonzero(is_test))


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


def load_mosaic(source: Source) -> Dataset:
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


def load_tumors(source: Source) -> Dataset:
    """Return 30 measurements of 569 tumors, a fifth of each class for testing."""
    read_options(NoOptions, source)
    # scikit-learn takes a second to import, which naming a data set should not cost.
    from sklearn import datasets

    bunch = datasets.load_breast_cancer()
    tumors = Examples(bunch.data.astype(np.float32), bunch.target.astype(np.int64))
    train, test = hold_out_each_class(tumors, source.name)
    names = tuple(str(name) for name in bunch.feature_names)
    columns = dict(zip(names, np.asarray(train.inputs).T, strict=True))
    rows = ColumnTable(source.name, columns, lambda row: f"{source.name} row {row}")
    return Dataset(
        source.name,
        Task.MULTICLASS,
        tuple(str(name) for name in bunch.target_names),
        train,
        test,
        features=names,
        table=TableFormat(fit_encoder(rows, FeatureColumns(names, (), "refuse", False))),
    ).normalized()
