"""Labelled examples: what must hold of them, long tails and label noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedbb.data.mapped import Inputs, take_rows
from fedbb.errors import DataError
from fedbb.records import MOST_CLASSES, IntArray

NoiseKind = Literal["symmetric", "pair"]


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled inputs of a network.

    Attributes:
        inputs: (N, …), uint8, float32, int32 or int64, such as images (N, channels, height, width).
        labels: (N,) int64 class numbers for a multi-class task; (N, C) float32 of 0, 1 and NaN for
            a multi-label task, where NaN is an unknown label.
        columns: further facts of each example as text (N,), such as its site or patient.
        teacher: logits (N, C) of a teacher, float32, where a method learns from them.
    """

    inputs: Inputs
    labels: npt.NDArray[Any]
    columns: Mapping[str, npt.NDArray[np.str_]] = field(default_factory=dict)
    teacher: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        form = f"inputs {self.inputs.dtype} {self.inputs.shape}"
        return f"Examples: {form}, labels {self.labels.dtype} {self.labels.shape}"

    def take(self, indices: IntArray) -> Examples:
        """Return the examples at these places, in this order."""
        columns = {name: values[indices] for name, values in self.columns.items()}
        teacher = None if self.teacher is None else self.teacher[indices]
        return Examples(take_rows(self.inputs, indices), self.labels[indices], columns, teacher)


def count_numbered_classes(labels: Mapping[str, npt.NDArray[Any]]) -> int:
    """Return how many classes there are if class numbers alone tell: one more than the highest.

    Args:
        labels: whole numbers (N,) of the parts of a data set, by the name that messages give them.

    Raises:
        DataError: a number far above the number of samples, whose classes would fill the memory.
    """
    allowed = min(MOST_CLASSES, max(1000, 2 * sum(len(part) for part in labels.values())))
    number = 1
    for where, part in labels.items():
        highest = int(part.max(initial=0))
        if highest >= allowed:
            raise DataError(
                f"{where} label {int(part.argmax())} is {highest}; without the names of the "
                f"classes at most {allowed:,} are allowed here: correct the label or name all "
                "classes"
            )
        number = max(number, highest + 1)
    return number


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
