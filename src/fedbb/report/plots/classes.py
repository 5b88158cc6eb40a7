"""Per-class bars: who learns the rare classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedbb.records import FloatArray, IntArray
from fedbb.report import statistics
from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.plots.canvas import INK, MUTED, Heading, new_figure, shorten, themed
from fedbb.report.plots.marks import Mark, marks_of
from fedbb.report.plots.rows import Rows, label_rows
from fedbb.report.results import class_counts, summary_of
from fedbb.report.statistics import spread_columns
from fedbb.report.wording import capitalize, metric_title

MOST_CLASSES = 24
BINS = 10


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Rows of a figure: a name, a count under it, and the classes it stands for."""

    names: list[str]
    counts: list[str]
    classes: list[IntArray]


@themed
def plot_classes(comparison: Comparison, metric: str) -> Figure:
    """Draw a per-class metric of the last round, classes from most to fewest training cases.

    More classes than fit are drawn as means over groups of neighbors in that order.
    """
    rows, marks = class_rows(comparison), marks_of(comparison.methods)
    title = f"{capitalize(metric_title(metric))} by class, last round"
    note = f"{shorten(comparison.title, 64)}\ntraining cases under each name"
    keys = [
        Patch(color=mark.color, label=shorten(part.label, 28))
        for part, mark in zip(comparison.methods, marks, strict=True)
    ]
    pitch = 0.17 + 0.085 * len(marks)
    figure, axes = new_figure(Heading(title, note, keys), pitch * len(rows.names) + 0.45)
    for place, (part, mark) in enumerate(zip(comparison.methods, marks, strict=True)):
        offset = (place - (len(marks) - 1) / 2) * 0.8 / len(marks)
        _draw(axes, _scores(part, metric, rows.classes), mark, Rows(offset, 0.8 / len(marks)))
    label_rows(axes, rows.names, rows.counts)
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"{metric_title(metric)}, points of 100")
    return figure


def class_order(comparison: Comparison) -> tuple[IntArray, FloatArray]:
    """Return the classes from most to fewest training cases, and the mean count of each class."""
    counts = class_counts(comparison.runs)
    return statistics.class_order(counts), counts


def class_rows(comparison: Comparison) -> ClassRows:
    """Return a row for each class, or for each bin of classes where there are too many."""
    order, counts = class_order(comparison)
    if len(order) <= MOST_CLASSES:
        names = [shorten(comparison.federation.classes[index]) for index in order]
        return ClassRows(names, [_cases(counts[index]) for index in order], list(order[:, None]))
    bins = np.array_split(order, BINS)
    ends = np.cumsum([len(part) for part in bins])
    names = [f"ranks {end - len(part) + 1}–{end}" for part, end in zip(bins, ends, strict=True)]
    spans = [f"{_cases(counts[part[0]])} to {_cases(counts[part[-1]])}" for part in bins]
    return ClassRows(names, spans, bins)


def _cases(count: float) -> str:
    return "–" if np.isnan(count) else f"{count:,.0f}"


def _scores(part: MethodRuns, metric: str, classes: Sequence[IntArray]) -> FloatArray:
    """Return the scores in points, of shape (seeds, rows)."""
    finals = [summary_of(run).final.scores["test"].per_class[metric] for run in part.runs]
    rows = [[spread_columns(vector[some, None])[0][0] for some in classes] for vector in finals]
    return 100 * np.array(rows)


def _draw(axes: Axes, scores: FloatArray, mark: Mark, rows: Rows) -> None:
    means, deviations = spread_columns(scores)
    places = np.arange(len(means)) + rows.offset
    axes.barh(places, np.nan_to_num(means), height=rows.height * 0.92, color=mark.color)
    axes.errorbar(means, places, xerr=deviations, fmt="none", ecolor=INK, elinewidth=0.8, alpha=0.7)
    for place in places[np.isnan(means)]:
        axes.text(1, place, "undefined", va="center", size=6.5, color=MUTED)
