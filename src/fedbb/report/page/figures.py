"""The numbers behind the figures of one comparison, rounded to what the page can show."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbb.records import FloatArray
from fedbb.report.groups import BASE, Comparison, MethodRuns
from fedbb.report.labels import TASK_METRICS, metric_title
from fedbb.report.page.tables import class_scores, client_scores
from fedbb.report.results import (
    RunResult,
    class_counts,
    score_on_test,
    scores_by_round,
    summary_of,
)
from fedbb.report.statistics import class_order, spread_columns, spread_of, subtract_by_seed
from fedbb.runs.metadata import KnownClient

DECIMALS = 2
MOST_CLIENTS = 100
"""Clients in a figure; of more, the largest are drawn."""


def figure_data(comparison: Comparison) -> dict[str, Any]:
    """Return what the figures of a comparison are drawn from, scores in points."""
    return {
        "curves": [curves(comparison, metric) for metric in _metrics(comparison)],
        "classes": classes(comparison),
        "weights": [weights(part) for part in comparison.methods if is_reweighed(part)],
        "partition": partition(comparison.first),
        "clients": [clients(comparison, part) for part in comparison.methods],
        "cost": [cost(comparison, part) for part in comparison.methods],
    }


def curves(comparison: Comparison, metric: str) -> dict[str, Any]:
    """Return mean and deviation over seeds of a macro metric after each round, by method."""
    tables = [scores_by_round(part.runs, metric) for part in comparison.methods]
    return {"title": metric_title(metric), "methods": [_both(table) for table in tables]}


def classes(comparison: Comparison) -> dict[str, Any]:
    """Return the classes from head to tail, with each method's scores and gains over FedAvg."""
    order = class_order(class_counts(comparison.runs))
    facts = comparison.federation
    scores = {part.label: class_scores(comparison, part)[:, order] for part in comparison.methods}
    base = next((part for part in comparison.methods if part.method == BASE), None)
    return {
        "metric": metric_title(comparison.class_metric),
        "names": [facts.classes[index] for index in order],
        "cases": [_number(facts.class_counts[index], 1) for index in order],
        "scores": [_both(scores[part.label]) for part in comparison.methods],
        "gains": [
            None
            if base is None or part is base
            else _both(_paired(part, base, scores[part.label], scores[base.label]))
            for part in comparison.methods
        ],
    }


def is_reweighed(part: MethodRuns) -> bool:
    """Tell whether a method weighs the clients of its first run otherwise than by size."""
    return any(
        abs(client.weight - client.weight_by_samples) > 1e-9
        for client in part.runs[0].federation.known
    )


def weights(part: MethodRuns) -> dict[str, Any]:
    """Return the weight of each client of the first seed by size and by the method, in percent."""
    chosen = sorted(largest(part.runs[0]), key=lambda client: client.dispersion or 0.0)
    return {
        "method": part.label,
        "clients": [client.client for client in chosen],
        "samples": [client.samples for client in chosen],
        "before": [_points(client.weight_by_samples) for client in chosen],
        "after": [_points(client.weight) for client in chosen],
    }


def partition(run: RunResult) -> dict[str, Any]:
    """Return how many cases of each class each client of a run holds."""
    chosen = largest(run)
    return {
        "seed": run.recipe.seed,
        "of": len(run.federation.clients),
        "classes": list(run.federation.classes),
        "clients": [client.client for client in chosen],
        "samples": [client.samples for client in chosen],
        "counts": [[_number(count, 1) for count in client.positives] for client in chosen],
    }


def clients(comparison: Comparison, part: MethodRuns) -> list[float | None]:
    """Return each client's score in the first seed, by the label mix of `client_scores`."""
    run = part.runs[0]
    shown = {client.client for client in largest(run)}
    scores = client_scores(run, class_scores(comparison, part)[0])
    pairs = zip(run.federation.known, scores, strict=True)
    return [_points(score) for client, score in pairs if client.client in shown]


def cost(comparison: Comparison, part: MethodRuns) -> list[float | None]:
    """Return the seconds of a run, and its final score with deviation, as means over seeds."""
    finals = (score_on_test(summary_of(run).final, comparison.metric) for run in part.runs)
    scores = spread_of(finals)
    seconds = spread_of(run.seconds for run in part.runs).mean
    return [_number(seconds, 3), _points(scores.mean), _points(scores.deviation)]


def largest(run: RunResult) -> list[KnownClient]:
    """Return the clients a figure shows, in their own order."""
    ranked = sorted(run.federation.known, key=lambda client: -client.samples)[:MOST_CLIENTS]
    return sorted(ranked, key=lambda client: client.client)


def _metrics(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys((comparison.metric, *TASK_METRICS[comparison.federation.task])))


def _paired(
    part: MethodRuns, base: MethodRuns, scores: FloatArray, rival: FloatArray
) -> FloatArray:
    """Return the differences on the seeds both have; a row of NaN where there is none."""
    own = dict(zip(part.seeds, scores, strict=True))
    gaps = subtract_by_seed(own, dict(zip(base.seeds, rival, strict=True)))
    return np.array([*gaps.values()]) if gaps else np.full((1, scores.shape[1]), np.nan)


def _both(table: FloatArray) -> list[list[float | None]]:
    means, deviations = spread_columns(table)
    return [[_points(value) for value in means], [_points(value) for value in deviations]]


def _points(share: float) -> float | None:
    return _number(100 * share, DECIMALS)


def _number(value: float, decimals: int) -> float | None:
    """Return a number as short as JSON can write it, None for NaN."""
    short = round(float(value), decimals)
    if short != short:
        return None
    return int(short) if short == int(short) else short
