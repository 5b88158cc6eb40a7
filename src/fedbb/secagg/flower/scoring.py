"""Scores of many sites as one, of which the server sees the pooled figures and nobody's own.

A site adds, for each set of examples, its size, and for each figure its size where the figure is
defined, and size times figure. From the sums follow the means over sites that `pooling` computes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedbb.errors import PrivacyError
from fedbb.evaluation.metrics import Scores
from fedbb.flower.app.pooling import pool_scores
from fedbb.flower.app.serde import PER_CLASS, SCORED
from fedbb.records import FloatArray, IntArray, Task

FIRST = 2**40
"""Added to a round's number, it is the number of the sum in which that round's model is scored."""

WHOLE = ("accuracy", "balanced_accuracy")
"""Figures that are no means over classes."""

_ONE = 2**24
"""What stands for one where shares of one are summed as whole numbers."""


def sum_length(classes: int) -> int:
    """Return how many numbers a site adds."""
    return len(SCORED) * (1 + 2 * _width(classes))


def weigh_scores(scores: Mapping[str, Scores], classes: int) -> IntArray:
    """Return, at the site, what it adds to the sum."""
    parts = [_weigh(scores.get(name), _width(classes)) for name in SCORED]
    return np.concatenate(parts).astype(np.int64)


def read_scores(totals: IntArray, classes: int, task: Task) -> dict[str, Scores]:
    """Return, at the server, the pooled scores that follow from the sum, or refuse it."""
    rows = totals.astype(np.float64).reshape(len(SCORED), -1)
    pooled = {name: _mean(row, classes) for name, row in zip(SCORED, rows, strict=True) if row[0]}
    if "test" not in pooled:
        raise PrivacyError("no site has test data, so there is nothing to score on")
    return pool_scores([pooled], task)


def _width(classes: int) -> int:
    return len(WHOLE) + len(PER_CLASS) * classes


def _weigh(found: Scores | None, width: int) -> FloatArray:
    if found is None:
        return np.zeros(1 + 2 * width)
    vectors = [found.per_class[metric] for metric in PER_CLASS]
    figures = np.concatenate([[found.macro[metric] for metric in WHOLE], *vectors])
    there = ~np.isnan(figures)
    weighed = np.rint(np.where(there, figures, 0.0) * found.samples * _ONE)
    return np.concatenate([[found.samples], there * float(found.samples), weighed])


def _mean(row: FloatArray, classes: int) -> Scores:
    samples, width = row[0], _width(classes)
    sizes, weighed = row[1 : 1 + width], row[1 + width :]
    # Each site's share is rounded once.
    if not (np.all(sizes <= samples) and np.all((weighed >= 0) & (weighed <= sizes * _ONE + _ONE))):
        raise PrivacyError("scores are shares of one, and the sum of some sites' is more than that")
    figures = np.full(width, np.nan)
    np.divide(weighed, sizes * _ONE, out=figures, where=sizes > 0)
    macro = dict(zip(WHOLE, figures.tolist(), strict=False))
    rest = figures[len(WHOLE) :].reshape(len(PER_CLASS), classes)
    return Scores(int(samples), macro, dict(zip(PER_CLASS, rest, strict=True)), defined={})
