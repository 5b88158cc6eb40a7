"""Scores by round, and scores against time."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

from fedbb._util.table import elide
from fedbb.records import FloatArray
from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.labels import capitalize, metric_title
from fedbb.report.plots.canvas import SURFACE, Heading, new_figure, themed
from fedbb.report.plots.marks import Mark, marks_of, point_look
from fedbb.report.results import score_on_test, scores_by_round, summary_of
from fedbb.report.statistics import Spread, spread_columns, spread_of

SIZE = 7.5
FAR_APART = 6.0
"""If the slowest method takes this many times the fastest, the axis of time is logarithmic."""


@themed
def plot_curves(comparison: Comparison, metric: str) -> Figure:
    """Draw the mean on test data with a band of one standard deviation over seeds."""
    marks = marks_of(comparison.methods)
    keys = [
        Line2D([], [], label=elide(part.label, 28), **_line_look(mark))
        for part, mark in zip(comparison.methods, marks, strict=True)
    ]
    title = f"{capitalize(metric_title(metric))} on test data by round"
    figure, axes = new_figure(Heading(title, elide(comparison.title, 64), keys), height=2.7)
    for part, mark in zip(comparison.methods, marks, strict=True):
        _draw_curve(axes, 100 * scores_by_round(part.runs, metric), mark)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("round")
    axes.set_ylabel("points of 100")
    axes.margins(x=0.02)
    return figure


def _draw_curve(axes: Axes, scores: FloatArray, mark: Mark) -> None:
    means, deviations = spread_columns(scores)
    rounds = np.arange(1, len(means) + 1)
    if len(scores) > 1:
        low, high = means - deviations, means + deviations
        axes.fill_between(rounds, low, high, color=mark.color, alpha=0.16, linewidth=0)
    every = max(1, len(rounds) // 8)
    axes.plot(rounds, means, markevery=every, **_line_look(mark))


def _line_look(mark: Mark) -> dict[str, Any]:
    return {
        "color": mark.color,
        "linestyle": mark.line,
        "linewidth": 1.7,
        "marker": mark.marker,
        "markersize": 4.5,
        "markeredgecolor": SURFACE,
        "markeredgewidth": 0.7,
    }


def cost_and_score(part: MethodRuns, metric: str) -> tuple[Spread, Spread]:
    """Return the seconds of a run's rounds and its last test score in points, over seeds."""
    scores = [100 * score_on_test(summary_of(run).final, metric) for run in part.runs]
    return spread_of(run.seconds for run in part.runs), spread_of(scores)


@themed
def plot_costs(comparison: Comparison, metric: str) -> Figure:
    """Draw each method's time against its score, thin lines one standard deviation over seeds."""
    title = f"What time buys: {metric_title(metric)}"
    note = f"{elide(comparison.title, 64)}\nseconds in all rounds of a run; last round's score"
    marks = marks_of(comparison.methods)
    keys = [
        Line2D([], [], label=elide(part.label, 28), **point_look(mark, 6.0))
        for part, mark in zip(comparison.methods, marks, strict=True)
    ]
    figure, axes = new_figure(Heading(title, note, keys), height=2.9)
    points = [cost_and_score(part, metric) for part in comparison.methods]
    for (seconds, score), mark in zip(points, marks, strict=True):
        look = point_look(mark, SIZE) | {"elinewidth": 0.9}
        reach_x, reach_y = _reach(seconds), _reach(score)
        axes.errorbar([seconds.mean], [score.mean], xerr=reach_x, yerr=reach_y, **look)
    times = [seconds.mean for seconds, _ in points]
    if min(times) > 0 and max(times) / min(times) > FAR_APART:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(0.12)
    axes.set_xlabel("seconds per run")
    axes.set_ylabel("points of 100")
    return figure


def _reach(spread: Spread) -> float | None:
    return spread.deviation if spread.number > 1 else None
