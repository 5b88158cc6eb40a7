"""Which model serves clients best: columns of accuracies by client, summed up and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbb._util.files import finite_or_none
from fedbb.records import FloatArray
from fedbb.rng import stream

REPLICATES = 10_000
"""Resamples of the clients behind an interval."""

Columns = Mapping[str, Sequence[float]]
"""Accuracies of each client by the name of the model, NaN where undefined."""


@dataclass(frozen=True)
class ColumnSummary:
    """How one kind of model serves the clients that define its accuracy.

    Attributes:
        column: The kind of model.
        clients: Number of these clients.
        by_samples: Mean weighted by the size of each client's test data, or of its training data if
            clients have no test data of their own.
        mean: Mean over clients.
        std: Standard deviation over clients, of n.
        worst: The lowest accuracy.
        worst_tenth: Mean of the lowest tenth of the clients, at least one.
        best_for: Number of clients that no other column serves better.
    """

    column: str
    clients: int
    by_samples: float
    mean: float
    std: float
    worst: float
    worst_tenth: float
    best_for: int

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, with None for NaN."""
        plain: dict[str, Any] = finite_or_none(self)
        return plain


@dataclass(frozen=True)
class PairedDifference:
    """How much better one kind of model serves the clients than another.

    Attributes:
        column: The kind of model.
        against: The other kind.
        clients: Number of clients that define both.
        mean: Mean over these clients of the difference.
        low: Lower end of the 95 % bootstrap interval of the mean, over clients; NaN for one client.
        high: Its upper end.
        ahead: Number of clients that the first serves better.
    """

    column: str
    against: str
    clients: int
    mean: float
    low: float
    high: float
    ahead: int

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, with None for NaN."""
        plain: dict[str, Any] = finite_or_none(self)
        return plain


def is_clear(one: float, two: float, tested: int) -> bool:
    """Return whether two accuracies on the same test data of one client surely differ.

    The difference d of two models on n samples has the variance (D − d²)/n, D being the share of
    samples that only one of them gets right; D is at most the sum of both errors, and of both
    accuracies. So d is called clear if it exceeds 1.96 times the largest deviation it can have.

    >>> is_clear(0.9, 0.8, 50), is_clear(0.9, 0.8, 200)
    (False, True)
    """
    if tested < 1 or math.isnan(one) or math.isnan(two):
        return False
    gap = one - two
    apart = min(2.0 - one - two, one + two)
    return abs(gap) > 1.96 * math.sqrt(max(apart - gap * gap, 0.0) / tested)


def summarize_columns(columns: Columns, sizes: Sequence[int]) -> list[ColumnSummary]:
    """Return a summary of every column.

    Args:
        columns: Accuracies of each client by column.
        sizes: By which clients are weighted, one for each client.
    """
    table = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
    every = np.array(list(table.values())).reshape(len(table), -1)
    # Columns in which no client is defined leave nothing to compare with.
    best = np.max(np.where(np.isnan(every), -np.inf, every), axis=0)
    weights = np.asarray(sizes, dtype=np.float64)
    return [_summary(name, values, weights, best) for name, values in table.items()]


def _summary(name: str, values: FloatArray, sizes: FloatArray, best: FloatArray) -> ColumnSummary:
    known = ~np.isnan(values)
    found = np.sort(values[known])
    if not len(found):
        return ColumnSummary(name, 0, *(math.nan,) * 5, 0)
    whole = sizes[known].sum()
    return ColumnSummary(
        column=name,
        clients=len(found),
        by_samples=float(values[known] @ sizes[known] / whole) if whole else math.nan,
        mean=float(found.mean()),
        std=float(found.std()),
        worst=float(found[0]),
        worst_tenth=float(found[: math.ceil(len(found) / 10)].mean()),
        best_for=int((values[known] >= best[known]).sum()),
    )


def compare_columns(columns: Columns, against: str, seed: int = 0) -> list[PairedDifference]:
    """Return the paired differences of all other columns to one.

    Args:
        columns: Accuracies of each client by column.
        against: The column that is subtracted.
        seed: Seed of the bootstrap over clients.
    """
    base = np.asarray(columns[against], dtype=np.float64)
    return [
        _difference(name, against, np.asarray(values, dtype=np.float64) - base, seed)
        for name, values in columns.items()
        if name != against
    ]


def _difference(name: str, against: str, gaps: FloatArray, seed: int) -> PairedDifference:
    gaps = gaps[~np.isnan(gaps)]
    if not len(gaps):
        return PairedDifference(name, against, 0, *(math.nan,) * 3, 0)
    low = high = math.nan
    if len(gaps) > 1:
        rng = stream(seed, "personalization", name, against)
        drawn = rng.integers(len(gaps), size=(REPLICATES, len(gaps)))
        low, high = np.quantile(gaps[drawn].mean(axis=1), (0.025, 0.975)).tolist()
    ahead = int((gaps > 0).sum())
    return PairedDifference(name, against, len(gaps), float(gaps.mean()), low, high, ahead)
