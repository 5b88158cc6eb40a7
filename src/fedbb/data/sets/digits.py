"""The 1,797 real handwritten digits of 8 × 8 pixels that ship inside scikit-learn."""

from __future__ import annotations

import numpy as np

from fedbb.data.dataset import Dataset, Examples
from fedbb.data.source import NoOptions, Source, read_options
from fedbb.data.transforms import channel_statistics
from fedbb.records import IntArray, Task
from fedbb.rng import stream

CLASSES = tuple("0123456789")

_TEST_SHARE = 0.2


def load(source: Source) -> Dataset:
    """Return the digits, a fifth of each class for testing."""
    read_options(NoOptions, source)
    train, test = split_digits()
    mean, std = channel_statistics(train.inputs)
    return Dataset(source.name, Task.MULTICLASS, CLASSES, train, test, mean, std)


def split_digits() -> tuple[Examples, Examples]:
    """Return (train, test), the same for every seed of a run, so that all scores are comparable."""
    # scikit-learn takes a second to import, which naming a data set should not cost.
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    digits = Examples(images, bunch.target.astype(np.int64))
    is_test = np.zeros(len(digits), dtype=bool)
    is_test[_test_places(digits.labels)] = True
    return digits.take(np.flatnonzero(~is_test)), digits.take(np.flatnonzero(is_test))


def _test_places(labels: IntArray) -> IntArray:
    """Return where the test digits stand: the same share of each class."""
    rng = stream(0, "digits", "split")
    places = [rng.permutation(np.flatnonzero(labels == label)) for label in range(len(CLASSES))]
    return np.concatenate([place[: round(_TEST_SHARE * len(place))] for place in places])
