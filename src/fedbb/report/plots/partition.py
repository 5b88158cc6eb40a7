"""The partition as a map: which client holds how many cases of which class."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fedbb.records import FloatArray
from fedbb.report.groups import Comparison
from fedbb.report.plots.canvas import BLUE, INK, MUTED, SURFACE, Heading, new_figure, themed
from fedbb.report.plots.rows import class_order
from fedbb.report.table import elide

MOST_COLUMNS = 14
MOST_ROWS = 24
FAINTEST, STRONGEST = 0.07, 0.72


@themed
def plot_partition(comparison: Comparison) -> Figure:
    """Draw clients against classes for the first seed; a cell without cases stays empty."""
    order, _ = class_order(comparison)
    federation = comparison.federation
    counts = np.array([client.positives for client in federation.clients])[:, order]
    names = [elide(federation.classes[index], 14) for index in order]
    is_small = len(names) <= MOST_COLUMNS and len(counts) <= MOST_ROWS
    note = f"{elide(comparison.title, 54)}; seed {comparison.first.recipe.seed}\n"
    note += "training cases; empty where there are none"
    height = 0.8 + (0.27 if is_small else 0.1) * min(len(counts), 40)
    figure, axes = new_figure(Heading("Which client holds which classes", note), height)
    _draw_cells(axes, counts, lines=is_small)
    if is_small:
        _write_counts(axes, counts)
    _label(axes, [f"client {client.client}" for client in federation.clients], names)
    return figure


def _draw_cells(axes: Axes, counts: FloatArray, *, lines: bool) -> None:
    # Opacity instead of a color map lets the cells sit on a light and on a dark page alike.
    strength = np.sqrt(counts / max(counts.max(), 1.0))
    cells = np.empty((*counts.shape, 4))
    cells[..., :3] = to_rgb(BLUE)
    cells[..., 3] = np.where(counts > 0, FAINTEST + (STRONGEST - FAINTEST) * strength, 0.0)
    width = 1.2 if lines else 0.0
    axes.pcolormesh(cells, rasterized=not lines, edgecolors=SURFACE, linewidth=width)
    axes.set_ylim(len(counts), 0)
    axes.grid(visible=False)


def _write_counts(axes: Axes, counts: FloatArray) -> None:
    for (row, column), count in np.ndenumerate(counts):
        if count > 0:
            place = (column + 0.5, row + 0.5)
            axes.text(*place, f"{count:.0f}", ha="center", va="center", size=7.5, color=INK)


def _label(axes: Axes, clients: list[str], classes: list[str]) -> None:
    rows = np.arange(0, len(clients), -(-len(clients) // MOST_ROWS))
    columns = np.arange(0, len(classes), -(-len(classes) // MOST_ROWS))
    axes.set_yticks(rows + 0.5, [clients[row] for row in rows], color=INK)
    is_short = max(len(name) for name in classes) <= 4
    turn = (
        {"rotation": 0} if is_short else {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    )
    axes.set_xticks(columns + 0.5, [classes[column] for column in columns], color=INK, **turn)
    axes.tick_params(length=0)
    axes.set_xlabel("class, most frequent first", color=MUTED)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
