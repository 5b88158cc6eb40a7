"""The scores of several sites, pooled.

Each site scores on its own test data, and no labels or counts leave it. The pooled scores are
means over the sites, weighted by their numbers of samples: exact for accuracy where all labels are
known, and approximate for the rest. An exact recall would need the number of cases of each class,
and ranks (AUROC, average precision) can only be compared within a site.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbb.evaluation.metrics import Scores
from fedbb.records import FloatArray, Task


def pool_scores(sites: Sequence[dict[str, Scores]], task: Task) -> dict[str, Scores]:
    """Return the pooled scores of several sites, for each set of examples that any of them has."""
    names = {name: None for scores in sites for name in scores}
    return {
        name: _pool([scores[name] for scores in sites if name in scores], task) for name in names
    }


def _pool(parts: Sequence[Scores], task: Task) -> Scores:
    sizes = np.array([part.samples for part in parts], dtype=np.float64)
    per_class = {
        metric: weighted_mean(np.stack([part.per_class[metric] for part in parts]), sizes)
        for metric in parts[0].per_class
    }
    figures = {
        metric: weighted_mean(np.array([[part.macro[metric]] for part in parts]), sizes)
        for metric in ("accuracy", "balanced_accuracy")
    }
    vectors = {metric: per_class[metric] for metric in ("f1", "auroc", "average_precision")}
    if task is Task.MULTICLASS:
        figures["balanced_accuracy"] = per_class["recall"]
    vectors = figures | vectors
    macro = {metric: _mean(vector) for metric, vector in vectors.items()}
    defined = {metric: int((~np.isnan(vector)).sum()) for metric, vector in vectors.items()}
    known = int((~np.isnan(per_class["recall"])).sum())
    defined["accuracy"] = known
    if task is Task.MULTILABEL:
        defined["balanced_accuracy"] = known
    return Scores(int(sizes.sum()), macro, per_class, defined)


def weighted_mean(values: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return the mean over sites (S, C) → (C,), weighted by size, without undefined values.

    >>> weighted_mean(np.array([[0.5, np.nan], [1.0, 1.0]]), np.array([1.0, 3.0]))
    array([0.875, 1.   ])
    """
    there = ~np.isnan(values)
    weights = there * sizes[:, np.newaxis]
    total = weights.sum(axis=0)
    summed = (np.where(there, values, 0.0) * weights).sum(axis=0)
    undefined = np.full(total.shape, np.nan)
    return np.asarray(np.divide(summed, total, out=undefined, where=total > 0))


def _mean(vector: FloatArray) -> float:
    there = vector[~np.isnan(vector)]
    return float(there.mean()) if len(there) else float("nan")
