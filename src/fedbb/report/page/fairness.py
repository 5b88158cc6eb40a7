"""How evenly a model serves classes and clients after the last round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbb.records import FloatArray
from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.results import RunResult, class_counts, summary_of
from fedbb.report.statistics import Spread, head_and_tail, spread_columns, spread_of


@dataclass(frozen=True)
class Fairness:
    """Scores of the worst served, and their spread over classes and clients, over seeds.

    `head` and `tail` are the means of the most and the least frequent third of the classes.
    """

    worst_class: str
    worst_class_score: Spread
    class_deviation: Spread
    head: Spread
    tail: Spread
    worst_client: Spread
    client_deviation: Spread


def fairness_of(comparison: Comparison, part: MethodRuns) -> Fairness:
    """Return how evenly one method serves the classes and clients of a comparison."""
    scores = class_scores(comparison, part)
    clients = [client_scores(run, row) for run, row in zip(part.runs, scores, strict=True)]
    head, tail = head_and_tail(class_counts(comparison.runs))
    means, _ = spread_columns(scores)
    worst = None if np.isnan(means).all() else int(np.nanargmin(means))
    return Fairness(
        worst_class="" if worst is None else comparison.federation.classes[worst],
        worst_class_score=spread_of([] if worst is None else scores[:, worst]),
        class_deviation=spread_of(deviation(row) for row in scores),
        head=spread_of(mean(row[head]) for row in scores),
        tail=spread_of(mean(row[tail]) for row in scores),
        worst_client=spread_of(lowest(row) for row in clients),
        client_deviation=spread_of(deviation(row) for row in clients),
    )


def class_scores(comparison: Comparison, part: MethodRuns) -> FloatArray:
    """Return the final test score of each class by the class metric, (seeds, classes)."""
    metric = comparison.class_metric
    size = len(comparison.federation.classes)
    rows = [summary_of(run).final.scores["test"].per_class.get(metric) for run in part.runs]
    return np.array([np.full(size, np.nan) if row is None else row for row in rows], np.float64)


def client_scores(run: RunResult, scores: FloatArray) -> FloatArray:
    """Return each client's score: those of the classes, weighed by its own mix of labels.

    With one class a sample this is the accuracy to expect of a client whose samples of a class are
    like the test data's. Classes without a score are left out of its mix.
    """
    held = [client.positives for client in run.federation.known]
    counts = np.array(held, np.float64).reshape(len(held), len(scores))
    counts = np.where(np.isnan(scores), 0.0, counts)
    totals = counts.sum(axis=1)
    undefined = np.full(totals.shape, np.nan)
    weighed = counts @ np.nan_to_num(scores)
    return np.asarray(np.divide(weighed, totals, out=undefined, where=totals > 0))


def mean(values: FloatArray) -> float:
    """Return the mean of the defined values, NaN of none."""
    return spread_of(values).mean


def deviation(values: FloatArray) -> float:
    """Return the standard deviation of the defined values, which are all there are, NaN of none."""
    found = values[~np.isnan(values)]
    return float(found.std()) if found.size else float("nan")


def lowest(values: FloatArray) -> float:
    """Return the least of the defined values, NaN of none."""
    found = values[~np.isnan(values)]
    return float(found.min()) if found.size else float("nan")
