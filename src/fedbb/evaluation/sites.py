"""Scores of a shared model at each site, and how evenly they are spread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbb._util.files import finite_or_none
from fedbb.evaluation.metrics import Scores


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
        worst: The lowest value.
        worst_client: The client that has it.
        worst_tenth: Mean of the lowest tenth of the sites, at least one.
    """

    metric: str
    sites: int
    mean: float
    std: float
    worst: float
    worst_client: int
    worst_tenth: float


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


def read_sites(plain: Sequence[Mapping[str, Any]]) -> tuple[SiteScores, ...]:
    """Return sites as `to_json` wrote them."""
    return tuple(SiteScores.from_json(site) for site in plain)
