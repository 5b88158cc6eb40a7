"""Scores over seeds: spread, confidence interval, paired difference and verdict; head and tail.

Every comparison of runs (`fedbb report`, `fedbb compare`, the tables of sweeps, the studies) is
judged by `PairedDifference.verdict`, and every split into head and tail by `head_and_tail`. The
intervals of a single evaluation, from a score and its number of cases, stand at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np
from scipy.special import ndtri, stdtrit  # type: ignore[import-untyped]

from fedbb.evaluation.score_report import LEVEL as LEVEL
from fedbb.records import FloatArray, IntArray

Scored = TypeVar("Scored", float, FloatArray)


@dataclass(frozen=True)
class Spread:
    """A mean (NaN of no values), its deviation (NaN below two values), and how many went in."""

    mean: float
    deviation: float
    number: int


@dataclass(frozen=True)
class Interval:
    """The ends of an interval, both NaN where it is undefined."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether all of it lies on one side of zero."""
        return self.low > 0 or self.high < 0


class Verdict(StrEnum):
    """How a score compares with another on the same seeds."""

    AHEAD = "ahead"
    BEHIND = "behind"
    UNCLEAR = "no clear difference"
    EQUAL = "equal"
    ONE_SEED = "one seed"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True)
class PairedDifference:
    """One score minus another on the same seeds.

    `seeds` are those on which both are defined; `ahead` and `behind` count the ones on which the
    first score is higher and lower.
    """

    spread: Spread
    interval: Interval
    ahead: int
    behind: int
    seeds: tuple[int, ...]

    @property
    def verdict(self) -> Verdict:
        """Ahead or behind only where the 95 % t interval of the mean difference excludes zero."""
        if not self.seeds:
            return Verdict.NOT_COMPARABLE
        if len(self.seeds) == 1:
            return Verdict.ONE_SEED
        if self.interval.excludes_zero:
            return Verdict.AHEAD if self.spread.mean > 0 else Verdict.BEHIND
        return Verdict.UNCLEAR if self.ahead or self.behind else Verdict.EQUAL


def spread_of(values: Iterable[float]) -> Spread:
    """Return the spread of the values that are defined.

    >>> spread_of([1.0, 3.0, float("nan")])
    Spread(mean=2.0, deviation=1.4142135623730951, number=2)
    """
    column = np.array(list(values), dtype=np.float64).reshape(-1, 1)
    means, deviations = spread_columns(column)
    return Spread(float(means[0]), float(deviations[0]), int((~np.isnan(column)).sum()))


def spread_columns(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and sample standard deviation of each column of (seeds, columns)."""
    defined = ~np.isnan(values)
    number = defined.sum(axis=0)
    means = _divide(np.where(defined, values, 0.0).sum(axis=0), number)
    squares = np.where(defined, values - means, 0.0) ** 2
    return means, np.sqrt(_divide(squares.sum(axis=0), number - 1))


def interval_of(values: Iterable[float], level: float = LEVEL) -> Interval:
    """Return Student's t interval for the mean of the values that are defined.

    >>> interval = interval_of([1.0, 2.0, 3.0])
    >>> round(interval.low, 3), round(interval.high, 3)
    (-0.484, 4.484)
    """
    spread = spread_of(values)
    if spread.number < 2:
        return Interval(math.nan, math.nan)
    factor = float(stdtrit(spread.number - 1, (1 + level) / 2))
    reach = factor * spread.deviation / math.sqrt(spread.number)
    return Interval(spread.mean - reach, spread.mean + reach)


def prediction_interval(values: Iterable[float], level: float = LEVEL) -> Interval:
    """Return Student's interval for one further value beside those that are defined.

    >>> interval = prediction_interval([1.0, 2.0, 3.0])
    >>> round(interval.low, 3), round(interval.high, 3)
    (-2.968, 6.968)
    """
    known = list(values)
    mean, number = interval_of(known, level), spread_of(known).number
    reach = (mean.high - mean.low) / 2 * math.sqrt(number + 1)
    return Interval((mean.low + mean.high) / 2 - reach, (mean.low + mean.high) / 2 + reach)


def subtract_by_seed(own: Mapping[int, Scored], other: Mapping[int, Scored]) -> dict[int, Scored]:
    """Return differences on the seeds that both have, of numbers or of arrays."""
    return {seed: own[seed] - other[seed] for seed in own if seed in other}


def paired_difference(own: Mapping[int, float], other: Mapping[int, float]) -> PairedDifference:
    """Return one score minus another; both map seeds to scores.

    >>> difference = paired_difference({0: 0.51, 1: 0.62, 2: 0.73}, {0: 0.5, 1: 0.6, 2: 0.7})
    >>> round(difference.spread.mean, 3), str(difference.verdict)
    (0.02, 'no clear difference')
    """
    gaps = subtract_by_seed(own, other)
    defined = {seed: gap for seed, gap in gaps.items() if not math.isnan(gap)}
    return PairedDifference(
        spread=spread_of(defined.values()),
        interval=interval_of(defined.values()),
        ahead=sum(gap > 0 for gap in defined.values()),
        behind=sum(gap < 0 for gap in defined.values()),
        seeds=tuple(defined),
    )


def class_order(counts: Sequence[float] | FloatArray) -> IntArray:
    """Return the classes from most to fewest training cases, equal ones in their own order."""
    return np.argsort(-np.asarray(counts, dtype=np.float64), kind="stable")


def head_and_tail(counts: Sequence[float] | FloatArray) -> tuple[IntArray, IntArray]:
    """Return the most frequent and the rarest third of the classes by their training cases.

    Args:
        counts: Training cases of each class.

    Returns:
        Indices of the head and of the tail, each from more to fewer cases. Both are empty where
        counts are unknown (NaN), where all classes are equally frequent, and for a single class.

    >>> [part.tolist() for part in head_and_tail([5, 90, 20, 1, 50, 7])]
    [[1, 4], [0, 3]]
    """
    order = class_order(counts)
    frequencies = np.asarray(counts, dtype=np.float64)
    if np.isnan(frequencies).any() or np.unique(frequencies).size < 2:
        return order[:0], order[:0]
    third = max(1, len(order) // 3)
    return order[:third], order[-third:]


def _divide(total: FloatArray, number: FloatArray) -> FloatArray:
    undefined = np.full(total.shape, np.nan)
    return np.asarray(np.divide(total, number, out=undefined, where=number > 0))


def wilson_interval(share: float, cases: float, level: float = LEVEL) -> Interval:
    """Return Wilson's interval of a proportion, such as accuracy or recall.

    It stays within [0, 1] and is usable for few cases and for proportions of 0 and 1.

    Args:
        share: The observed proportion.
        cases: The number of cases it is a proportion of.
        level: The confidence level.

    Returns:
        The interval; NaN at both ends without cases.

    >>> interval = wilson_interval(0.8, 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4902, 0.9433)
    """
    if not cases > 0 or math.isnan(share):
        return Interval(math.nan, math.nan)
    z = _quantile(level)
    center = share + z * z / (2 * cases)
    margin = z * math.sqrt(share * (1 - share) / cases + z * z / (4 * cases * cases))
    scale = 1 + z * z / cases
    return Interval(max(0.0, (center - margin) / scale), min(1.0, (center + margin) / scale))


def auroc_interval(
    auroc: float, positives: float, negatives: float, level: float = LEVEL
) -> Interval:
    """Return the interval of an area under the ROC curve by Hanley and McNeil (1982).

    Args:
        auroc: The observed area.
        positives: The number of positive cases.
        negatives: The number of negative cases.
        level: The confidence level.

    Returns:
        The interval, cut at 0 and 1; NaN at both ends without cases of both kinds.
    """
    if not (positives > 0 and negatives > 0) or math.isnan(auroc):
        return Interval(math.nan, math.nan)
    both_positive = auroc / (2 - auroc)
    both_negative = 2 * auroc * auroc / (1 + auroc)
    variance = (
        auroc * (1 - auroc)
        + (positives - 1) * (both_positive - auroc * auroc)
        + (negatives - 1) * (both_negative - auroc * auroc)
    ) / (positives * negatives)
    margin = _quantile(level) * math.sqrt(max(0.0, variance))
    return Interval(max(0.0, auroc - margin), min(1.0, auroc + margin))


def _quantile(level: float) -> float:
    return float(ndtri(0.5 + level / 2))
