"""Wrong labels, made on purpose: a share of the training labels is replaced by other classes."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedbb.errors import DataError
from fedbb.records import IntArray

NoiseKind = Literal["symmetric", "pair"]


def noisy_labels(
    labels: IntArray, classes: int, rate: float, kind: NoiseKind, rng: np.random.Generator
) -> IntArray:
    """Return class numbers of which each is wrong with probability `rate`.

    Args:
        labels: (N,) class numbers.
        classes: the number of classes.
        rate: from 0 to below 1.
        kind: a wrong label is any other class with equal probability ("symmetric"), or the next
            class, after the last the first ("pair").
        rng: the random numbers; the same positions are wrong under both kinds.

    Raises:
        DataError: labels of a multi-label task, a single class, or a value out of range.
    """
    if labels.ndim != 1:
        raise DataError("label noise needs one class per sample; these labels are multi-label")
    if classes < 2:
        raise DataError("label noise needs at least two classes")
    if kind not in ("symmetric", "pair"):
        raise DataError(f"label noise is symmetric or pair, not {kind!r}")
    if not 0 <= rate < 1:
        raise DataError(f"the rate of label noise is {rate}; it must be from 0 to below 1")
    wrong = rng.random(len(labels)) < rate
    steps = rng.integers(1, classes, len(labels)) if kind == "symmetric" else 1
    return np.where(wrong, (labels + steps) % classes, labels)
