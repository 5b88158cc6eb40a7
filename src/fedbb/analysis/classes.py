"""Level two: classes against each other, alone and in the sets they occur in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbb.analysis.tally import Tally
from fedbb.imbalance.classes import class_shares
from fedbb.records import FloatArray, Task

RARE = 10
"""A set of classes that fewer samples than this have is rare."""
LISTED = 20


@dataclass(frozen=True)
class LabelSet:
    """Classes that occur on one sample, and how many samples have exactly these."""

    classes: tuple[str, ...]
    samples: int


@dataclass(frozen=True)
class LabelSets:
    """How many sets of classes there are: `seen` of 2^`classes`, few samples having the `rare`."""

    classes: int
    seen: int
    rare: int
    rare_samples: int
    largest: tuple[LabelSet, ...]


@dataclass(frozen=True, eq=False)
class Classes:
    """`shares` A / ΣA and `prevalence` A / (A + B) of each class, and figures of the shares.

    `ratio` is that of the largest class to the smallest that occurs; `gini` is 0 where all are
    equal; `entropy`, in bits, is at most log₂ C, and 2 to its power the `effective` classes.
    """

    shares: FloatArray
    prevalence: FloatArray
    ratio: float
    gini: float
    entropy: float
    effective: float
    absent: tuple[str, ...]
    sets: LabelSets | None


def measure_classes(tally: Tally) -> Classes:
    """Return the figures of the classes of all clients together."""
    positive, negative = tally.positive.sum(axis=0), tally.negative.sum(axis=0)
    shares = class_shares(positive)
    entropy = entropy_of(shares)
    absent = [name for name, count in zip(tally.classes, positive, strict=True) if count == 0]
    return Classes(
        shares,
        class_shares(positive, positive + negative),
        ratio_of(positive),
        gini_of(positive),
        entropy,
        2.0**entropy,
        tuple(absent),
        _sets(tally) if tally.task is Task.MULTILABEL else None,
    )


def ratio_of(counts: FloatArray) -> float:
    """Return the largest over the smallest number above zero; NaN where there is none.

    >>> ratio_of(np.array([5000.0, 0.0, 500.0]))
    10.0
    """
    held = counts[counts > 0]
    return float(held.max() / held.min()) if held.size else float("nan")


def gini_of(values: FloatArray) -> float:
    """Return Σᵢ Σⱼ |xᵢ − xⱼ| / (2 C Σ x), from sorted values.

    >>> gini_of(np.array([1.0, 1.0, 1.0, 1.0])), gini_of(np.array([0.0, 0.0, 0.0, 8.0]))
    (0.0, 0.75)
    """
    total = values.sum()
    if not total > 0:
        return 0.0
    rank = 2.0 * np.arange(1, values.size + 1) - values.size - 1.0
    return float(rank @ np.sort(values) / (values.size * total))


def entropy_of(shares: FloatArray) -> float:
    """Return −Σ p log₂ p, the entropy of shares in bits."""
    held = shares[shares > 0]
    return max(0.0, float(-(held * np.log2(held)).sum()))


def _sets(tally: Tally) -> LabelSets:
    rare = tally.set_sizes < RARE
    largest = tuple(
        LabelSet(tuple(tally.classes[place] for place in np.flatnonzero(marks)), int(size))
        for marks, size in zip(tally.sets[:LISTED], tally.set_sizes[:LISTED], strict=True)
    )
    return LabelSets(
        len(tally.classes),
        len(tally.sets),
        int(rare.sum()),
        int(tally.set_sizes[rare].sum()),
        largest,
    )
