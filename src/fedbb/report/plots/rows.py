"""Rows of a figure: one for each class, and names at the left edge of the axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from fedbb._util.table import elide
from fedbb.records import FloatArray, IntArray
from fedbb.report import statistics
from fedbb.report.groups import Comparison
from fedbb.report.plots.canvas import INK, MUTED
from fedbb.report.results import class_counts

MOST_CLASSES = 24
BINS = 10


@dataclass(frozen=True)
class Rows:
    """Where bars lie in their rows, which are one apart."""

    offset: float
    height: float


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Rows of a figure: a name, a count under it, and the classes it stands for."""

    names: list[str]
    counts: list[str]
    classes: list[IntArray]


def class_order(comparison: Comparison) -> tuple[IntArray, FloatArray]:
    """Return the classes from most to fewest training cases, and the mean count of each class."""
    counts = class_counts(comparison.runs)
    return statistics.class_order(counts), counts


def class_rows(comparison: Comparison) -> ClassRows:
    """Return a row for each class, or for each bin of classes where there are too many."""
    order, counts = class_order(comparison)
    if len(order) <= MOST_CLASSES:
        names = [elide(comparison.federation.classes[index]) for index in order]
        return ClassRows(names, [_cases(counts[index]) for index in order], list(order[:, None]))
    bins = np.array_split(order, BINS)
    ends = np.cumsum([len(part) for part in bins])
    names = [f"ranks {end - len(part) + 1}–{end}" for part, end in zip(bins, ends, strict=True)]
    spans = [f"{_cases(counts[part[0]])} to {_cases(counts[part[-1]])}" for part in bins]
    return ClassRows(names, spans, bins)


def _cases(count: float) -> str:
    return "–" if np.isnan(count) else f"{count:,.0f}"


def label_rows(axes: Axes, names: Sequence[str], notes: Sequence[str]) -> None:
    """Name the rows from top to bottom, each with a note under its name."""
    edge = axes.get_yaxis_transform()
    for place, (name, note) in enumerate(zip(names, notes, strict=True)):
        axes.text(-0.015, place, name, transform=edge, ha="right", va="bottom", color=INK)
        axes.text(-0.015, place, note, transform=edge, ha="right", va="top", size=7.5, color=MUTED)
    axes.set_yticks([])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
