"""What each class gains over FedAvg, from head to tail."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedbb.records import FloatArray, IntArray
from fedbb.report.groups import BASE, Comparison, MethodRuns
from fedbb.report.labels import capitalize, metric_title
from fedbb.report.plots.canvas import GRID, MUTED, Heading, new_figure, themed
from fedbb.report.plots.marks import Mark, marks_of, point_look
from fedbb.report.plots.rows import class_rows, label_rows
from fedbb.report.results import RunResult, summary_of
from fedbb.report.statistics import spread_columns, subtract_by_seed
from fedbb.report.table import elide

SIZE = 5.0


def base_part(comparison: Comparison) -> MethodRuns | None:
    """Return FedAvg if another method shares a seed with it, so that there are gains; or None."""
    base = next((part for part in comparison.methods if part.method == BASE), None)
    if base is None:
        return None
    others = [part for part in comparison.methods if part is not base]
    return base if any(set(part.seeds) & set(base.seeds) for part in others) else None


@themed
def plot_gains(comparison: Comparison, base: MethodRuns, metric: str) -> Figure:
    """Draw each method's per-class score minus FedAvg's on the same seeds, frequent classes on top.

    A thin line reaches one standard deviation over seeds to either side.
    """
    rows = class_rows(comparison)
    marks = dict(zip(comparison.methods, marks_of(comparison.methods), strict=True))
    drawn = [part for part in comparison.methods if set(part.seeds) & set(base.seeds)]
    drawn.remove(base)
    keys = [
        Line2D([], [], label=elide(part.label, 28), **point_look(marks[part], SIZE))
        for part in drawn
    ]
    title = f"{capitalize(metric_title(metric))} gained over {elide(base.label, 16)}"
    note = f"{elide(comparison.title, 64)}\nlast round, head to tail; training cases under names"
    pitch = max(0.32, 0.14 + 0.085 * len(drawn))
    figure, axes = new_figure(Heading(title, note, keys), pitch * len(rows.names) + 0.45)
    axes.axvline(0, color=MUTED, linewidth=1.0)
    for border in range(1, len(rows.names)):
        axes.axhline(border - 0.5, color=GRID, linewidth=0.7)
    for place, part in enumerate(drawn):
        offset = (place - (len(drawn) - 1) / 2) * 0.8 / len(drawn)
        _draw(axes, class_gains(part, base, metric, rows.classes), marks[part], offset)
    label_rows(axes, rows.names, rows.counts)
    axes.set_xlabel(f"points more than {elide(base.label, 24)}")
    return figure


def class_gains(
    part: MethodRuns, base: MethodRuns, metric: str, classes: Sequence[IntArray]
) -> FloatArray:
    """Return the gains in points, of shape (seeds that both have, rows of classes)."""
    own, other = (
        {run.recipe.seed: _vector(run, metric) for run in group.runs} for group in (part, base)
    )
    gaps = subtract_by_seed(own, other).values()
    return 100 * np.array(
        [[spread_columns(gap[some, None])[0][0] for some in classes] for gap in gaps]
    )


def _vector(run: RunResult, metric: str) -> FloatArray:
    unknown = np.full(len(run.federation.classes), np.nan)
    return summary_of(run).final.scores["test"].per_class.get(metric, unknown)


def _draw(axes: Axes, gains: FloatArray, mark: Mark, offset: float) -> None:
    means, deviations = spread_columns(gains)
    places = np.arange(len(means)) + offset
    reach = np.nan_to_num(deviations)
    axes.errorbar(means, places, xerr=reach, elinewidth=0.9, **point_look(mark, SIZE))
