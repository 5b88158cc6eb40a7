"""Student's interval for the mean of a few values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.special import stdtrit  # type: ignore[import-untyped]

from fedbb.report.spread import spread_of

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """The ends of an interval, both NaN where fewer than two values are defined."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether all of it lies on one side of zero."""
        return self.low > 0 or self.high < 0


def interval_of(values: Iterable[float], level: float = LEVEL) -> Interval:
    """Return the interval that holds the mean with this confidence, if values spread normally.

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
