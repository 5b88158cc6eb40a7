"""Scores of the models that clients have of their own: their mean, and how they are spread."""

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
