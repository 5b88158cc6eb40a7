"""Mean and sample standard deviation over seeds, undefined values left out and counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedbb.records import FloatArray


@dataclass(frozen=True)
class Spread:
    """A mean (NaN of no values), its deviation (NaN below two values), and how many went in."""

    mean: float
    deviation: float
    number: int


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


def _divide(total: FloatArray, number: FloatArray) -> FloatArray:
    undefined = np.full(total.shape, np.nan)
    return np.asarray(np.divide(total, number, out=undefined, where=number > 0))
