"""Scores of a shared model at each site, and how evenly they are spread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedbb._util.files import finite_or_none
from fedbb.evaluation.metrics import Scores
from fedbb.records import IntArray

OWN_TEST = "own_test"
"""Name of the clients' own test data beside "test" and "validation"."""


@dataclass(frozen=True)
class SiteScores:
    """Macro scores of a model on one site's own test data.

    Attributes:
        client: Number of the client.
        samples: Size of its own test data.
        classes: Number of classes of which it has cases.
        macro: Means over the classes that define them, by metric; NaN if none does.
    """

    client: int
    samples: int
    classes: int
    macro: Mapping[str, float]

    @classmethod
    def of(cls, client: int, scores: Scores) -> SiteScores:
        """Return what is kept of a site's scores."""
        classes = int((~np.isnan(scores.per_class["recall"])).sum())
        return cls(client, scores.samples, classes, dict(scores.macro))

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, with None for NaN."""
        plain: dict[str, Any] = finite_or_none(self)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> SiteScores:
        """Return what `to_json` was given."""
        macro = {str(k): math.nan if v is None else 1.0 * v for k, v in plain["macro"].items()}
        client, samples, classes = (int(plain[key]) for key in ("client", "samples", "classes"))
        return cls(client, samples, classes, macro)


@dataclass(frozen=True)
class SiteSpread:
    """How evenly a metric is spread over the sites that define it.

    Attributes:
        metric: The metric.
        sites: Number of sites that define it.
        mean: Mean over these sites.
        std: Standard deviation over these sites; 0 for one.
        worst: The lowest value; None in private runs, where only sums over sites are known.
        worst_client: The client that has it; None in private runs.
        worst_tenth: Mean of the lowest tenth of the sites, at least one; None in private runs.
    """

    metric: str
    sites: int
    mean: float
    std: float
    worst: float | None = None
    worst_client: int | None = None
    worst_tenth: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> SiteSpread:
        """Return what `to_json` was given."""
        return cls(**plain)


SUMMED = ("accuracy", "balanced_accuracy", "f1", "auroc", "average_precision")
"""The metrics whose sums over sites a private run learns."""

SUMMED_LENGTH = 2 + 3 * len(SUMMED)

_ONE = 2**40
"""The integer that stands for 1 in sums of scores."""


def site_vector(site: SiteScores | None) -> IntArray:
    """Return, at a site, what it adds to the sum of the sites' scores; zeros without test data.

    That it has test data, its samples, and for each metric whether it is defined, and the integers
    that stand for its value and for its square.
    """
    if site is None:
        return np.zeros(SUMMED_LENGTH, dtype=np.int64)
    vector = [1, site.samples]
    for metric in SUMMED:
        value = site.macro.get(metric, math.nan)
        known = not math.isnan(value)
        vector += [1, round(value * _ONE), round(value * value * _ONE)] if known else [0, 0, 0]
    return np.array(vector, dtype=np.int64)


def spreads_from_sums(totals: IntArray) -> tuple[SiteSpread, ...]:
    """Return what follows from the sum over sites: mean and standard deviation of each metric.

    Raises:
        ValueError: Scores from 0 to 1 cannot have this sum.
    """
    spreads = []
    for metric, (sites, total, squares) in zip(SUMMED, totals[2:].reshape(-1, 3), strict=True):
        number, first, second = int(sites), int(total) / _ONE, int(squares) / _ONE
        if not (0 <= number <= totals[0] and 0 <= first <= number and 0 <= second <= number):
            raise ValueError(f"the sum of {metric} over {totals[0]} sites is not within 0 and 1")
        if number:
            mean = first / number
            variance = max(second - number * mean * mean, 0.0) / max(number - 1, 1)
            spreads.append(SiteSpread(metric, number, mean, math.sqrt(variance)))
    return tuple(spreads)


def spread_over_sites(sites: Iterable[SiteScores], metric: str) -> SiteSpread | None:
    """Return the spread of a metric, None if no site defines it.

    >>> sites = [SiteScores(n, 9, 2, {"accuracy": a}) for n, a in enumerate((0.9, 0.5, 0.7))]
    >>> spread_over_sites(sites, "accuracy").worst_client
    1
    """
    found = [
        (site.macro[metric], site.client)
        for site in sites
        if not math.isnan(site.macro.get(metric, math.nan))
    ]
    if not found:
        return None
    values = np.sort([value for value, _ in found])
    worst, client = min(found)
    return SiteSpread(
        metric=metric,
        sites=len(found),
        mean=float(values.mean()),
        std=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        worst=worst,
        worst_client=client,
        worst_tenth=float(values[: math.ceil(len(values) / 10)].mean()),
    )


def spreads_over_sites(sites: Sequence[SiteScores]) -> tuple[SiteSpread, ...]:
    """Return the spread of every metric that some site defines."""
    found = (spread_over_sites(sites, name) for name in (sites[0].macro if sites else ()))
    return tuple(spread for spread in found if spread is not None)


def read_sites(plain: Sequence[Mapping[str, Any]]) -> tuple[SiteScores, ...]:
    """Return sites as `to_json` wrote them."""
    return tuple(SiteScores.from_json(site) for site in plain)
