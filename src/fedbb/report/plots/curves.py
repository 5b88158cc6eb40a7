"""Learning curves: a metric round by round, over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedbb.records import FloatArray
from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.labels import capitalize, metric_title
from fedbb.report.plots.canvas import SURFACE, Heading, new_figure, themed
from fedbb.report.plots.marks import Mark, marks_of
from fedbb.report.results import score_on_test
from fedbb.report.statistics import spread_columns
from fedbb.report.table import elide


@themed
def plot_curves(comparison: Comparison, metric: str) -> Figure:
    """Draw the mean on test data with a band of one standard deviation over seeds."""
    marks = marks_of(comparison.methods)
    keys = [
        Line2D([], [], label=elide(part.label, 28), **_look(mark))
        for part, mark in zip(comparison.methods, marks, strict=True)
    ]
    title = f"{capitalize(metric_title(metric))} on test data by round"
    figure, axes = new_figure(Heading(title, elide(comparison.title, 64), keys), height=2.7)
    for part, mark in zip(comparison.methods, marks, strict=True):
        _draw(axes, _by_round(part, metric), mark)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("round")
    axes.set_ylabel("points of 100")
    axes.margins(x=0.02)
    return figure


def _by_round(part: MethodRuns, metric: str) -> FloatArray:
    """Return the scores in points, of shape (seeds, rounds)."""
    return 100 * np.array(
        [[score_on_test(finished, metric) for finished in run.rounds] for run in part.runs]
    )


def _draw(axes: Axes, scores: FloatArray, mark: Mark) -> None:
    means, deviations = spread_columns(scores)
    rounds = np.arange(1, len(means) + 1)
    if len(scores) > 1:
        low, high = means - deviations, means + deviations
        axes.fill_between(rounds, low, high, color=mark.color, alpha=0.16, linewidth=0)
    every = max(1, len(rounds) // 8)
    axes.plot(rounds, means, markevery=every, **_look(mark))


def _look(mark: Mark) -> dict[str, Any]:
    return {
        "color": mark.color,
        "linestyle": mark.line,
        "linewidth": 1.7,
        "marker": mark.marker,
        "markersize": 4.5,
        "markeredgecolor": SURFACE,
        "markeredgewidth": 0.7,
    }
