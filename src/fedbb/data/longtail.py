"""Long-tailed training sets: class sizes that fall geometrically from first to last class."""

from __future__ import annotations

import numpy as np

from fedbb.data.examples import Examples
from fedbb.errors import DataError
from fedbb.records import IntArray


def long_tail(
    examples: Examples, classes: int, factor: float, rng: np.random.Generator
) -> Examples:
    """Reduce the classes so that the last keeps `factor` times the size of the largest.

    The examples that stay are drawn from `rng` and keep their order.
    """
    if examples.labels.ndim != 1:
        raise DataError(
            "a long tail needs one class per image; multi-label sets are imbalanced by themselves, "
            "and no class can be reduced without the others"
        )
    sizes = tail_sizes(np.bincount(examples.labels, minlength=classes), factor)
    kept = [
        rng.permutation(np.flatnonzero(examples.labels == label))[:size]
        for label, size in enumerate(sizes)
    ]
    return examples.take(np.sort(np.concatenate(kept)))


def tail_sizes(available: IntArray, factor: float) -> IntArray:
    """Return how many of each class to keep: min(available, int(largest · factor^(j / (C − 1)))).

    At least one stays of every class that has any, however small the factor.

    >>> tail_sizes(np.full(10, 5000), 0.1).tolist()
    [5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645, 500]
    """
    if not 0 < factor <= 1:
        raise DataError(
            f"the long-tail factor is {factor}; it is the smallest class size over the largest, "
            "above 0 and at most 1"
        )
    steps = np.arange(len(available)) / max(len(available) - 1, 1)
    profile = (available.max() * factor**steps).astype(np.int64)
    sizes: IntArray = np.minimum(available, np.maximum(profile, 1))
    return sizes
