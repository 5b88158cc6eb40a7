"""The 1,797 real handwritten digits of 8 × 8 pixels that ship inside scikit-learn."""

from __future__ import annotations

import numpy as np

from fedbb.data.dataset import Dataset, Examples
from fedbb.data.source import NoOptions, Source, read_options
from fedbb.data.transforms import channel_statistics
from fedbb.records import Task
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
