"""Models that clients have of their own: their scores, and which model serves clients best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbb._util.files import finite_or_none
from fedbb.evaluation.metrics import Scores
from fedbb.evaluation.sites import OWN_TEST, SiteScores, spreads_over_sites
from fedbb.records import FloatArray
from fedbb.rng import stream

SCORES_OF = "scores_of"
"""Key of records and summaries: that the scores are means over the models of the clients."""

PERSONAL_SCORES = "personal"
"""Key of records: scores of the clients' own models on their own test data."""


@dataclass(frozen=True, eq=False)
class ClientsScores:
    """Scores of the clients' own models on the same kind of examples, as means over the clients.

    Attributes:
        mean: Scores by the name of the examples; each figure is the mean over the clients that
            define it.
        std: Standard deviation over these clients by name and macro metric; 0 for one client.
        worst: The lowest value, likewise.
        models: Number of clients that are scored.
        trained: Number of them that took part in a round so far; the others have the first model.
        distance: Root of the mean squared distance of the clients' models from their mean, over
            parameters, where models are meant to agree; else None.
        hidden: Whether the run is private: the record then has no figure of a single client.
    """

    mean: Mapping[str, Scores]
    std: Mapping[str, Mapping[str, float]]
    worst: Mapping[str, Mapping[str, float]]
    models: int
    trained: int
    distance: float | None = None
    hidden: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return what a record says of its scores, beside the means themselves."""
        spread = {"std": self.std} if self.hidden else {"std": self.std, "worst": self.worst}
        return {
            "models": "clients",
            "clients": self.models,
            "trained": self.trained,
            **({} if self.distance is None else {"consensus_distance": self.distance}),
            **{
                figure: {name: finite_or_none(dict(values)) for name, values in found.items()}
                for figure, found in spread.items()
            },
        }


@dataclass(frozen=True)
class PersonalScores:
    """Scores on the clients' own test data after a round.

    Attributes:
        own: Those of each client's own model.
        shared: Those of the shared model; empty if there is none for all.
    """

    own: tuple[SiteScores, ...]
    shared: tuple[SiteScores, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what a record says: figures over clients by metric, and no single client's."""
        parts = {"own": self.own, "shared": self.shared}
        return {
            "tested_on": OWN_TEST,
            "clients": len(self.own),
            **{name: _figures(sites) for name, sites in parts.items() if sites},
        }


def _figures(sites: Sequence[SiteScores]) -> dict[str, Any]:
    """Return the spread of each metric, and its mean by samples."""
    found: dict[str, Any] = {}
    for spread in spreads_over_sites(sites):
        known = [site for site in sites if not math.isnan(site.macro[spread.metric])]
        total = sum(site.samples for site in known)
        weighted = math.fsum(site.samples * site.macro[spread.metric] for site in known)
        figures = spread.to_json()
        del figures["metric"]
        found[spread.metric] = {"mean_by_samples": weighted / total, **figures}
    return found


def mean_over_clients(
    found: Sequence[Mapping[str, Scores]], trained: int, distance: float | None = None
) -> ClientsScores:
    """Return the mean and the spread of the scores of each client's own model.

    Every client counts alike, and undefined figures stay out.

    Args:
        found: The scores of each client by the name of the examples, in client order.
        trained: Number of clients that took part in a round so far.
        distance: How far the models are apart, where they are meant to agree.
    """
    names = list(dict.fromkeys(name for scores in found for name in scores))
    parts = {name: [scores[name] for scores in found if name in scores] for name in names}
    return ClientsScores(
        mean={name: _mean(scores) for name, scores in parts.items()},
        std={name: _over(scores, _deviation) for name, scores in parts.items()},
        worst={name: _over(scores, lambda v: float(v.min())) for name, scores in parts.items()},
        models=len(found),
        trained=trained,
        distance=distance,
    )


def _mean(parts: Sequence[Scores]) -> Scores:
    per_class = {
        metric: _columns(np.stack([part.per_class[metric] for part in parts]))
        for metric in parts[0].per_class
    }
    return Scores(
        samples=max(part.samples for part in parts),
        macro=_over(parts, lambda values: math.fsum(values.tolist()) / len(values)),
        per_class=per_class,
        defined={
            metric: int((~np.isnan(per_class.get(metric, per_class["recall"]))).sum())
            for metric in parts[0].macro
        },
    )


def _columns(values: FloatArray) -> FloatArray:
    """Return the mean over clients (K, C) → (C,) without undefined values."""
    known = ~np.isnan(values)
    total, number = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    undefined = np.full(total.shape, np.nan)
    return np.asarray(np.divide(total, number, out=undefined, where=number > 0))


def _over(parts: Sequence[Scores], figure: Callable[[FloatArray], float]) -> dict[str, float]:
    """Return a figure of each macro metric over the clients that define it; NaN if none does."""
    found = {}
    for metric in parts[0].macro:
        values = np.array([part.macro[metric] for part in parts], dtype=np.float64)
        values = values[~np.isnan(values)]
        found[metric] = figure(values) if len(values) else math.nan
    return found


def _deviation(values: FloatArray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


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
