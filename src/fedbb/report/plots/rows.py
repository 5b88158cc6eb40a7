"""Horizontal rows with a name, and a smaller word under it, at the left edge of the axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from fedbb.report.plots.canvas import INK, MUTED


@dataclass(frozen=True)
class Rows:
    """Where bars lie in their rows, which are one apart."""

    offset: float
    height: float


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
