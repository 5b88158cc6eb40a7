"""Clients: the partition as a map, and their weights before and after CBR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedbb._util.table import elide
from fedbb.records import FloatArray
from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.plots.canvas import BLUE, INK, MUTED, SURFACE, Heading, new_figure, themed
from fedbb.report.plots.marks import marks_of
from fedbb.report.plots.rows import Rows, class_order, label_rows
from fedbb.runs.metadata import KnownClient

MOST_COLUMNS = 14
MOST_ROWS = 24
MOST_CLIENTS = 24
FAINTEST, STRONGEST = 0.07, 0.72


@themed
def plot_partition(comparison: Comparison) -> Figure:
    """Draw clients against classes for the first seed; a cell without cases stays empty."""
    order, _ = class_order(comparison)
    federation = comparison.federation
    counts = np.array([client.positives for client in federation.known])[:, order]
    names = [elide(federation.classes[index], 14) for index in order]
    is_small = len(names) <= MOST_COLUMNS and len(counts) <= MOST_ROWS
    note = f"{elide(comparison.title, 54)}; seed {comparison.first.recipe.seed}\n"
    note += "training cases; empty where there are none"
    height = 0.8 + (0.27 if is_small else 0.1) * min(len(counts), 40)
    figure, axes = new_figure(Heading("Which client holds which classes", note), height)
    _draw_cells(axes, counts, lines=is_small)
    if is_small:
        _write_counts(axes, counts)
    _label_map(axes, [f"client {client.client}" for client in federation.known], names)
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


def _label_map(axes: Axes, clients: list[str], classes: list[str]) -> None:
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


def balanced_part(comparison: Comparison) -> MethodRuns | None:
    """Return the method whose weights look at label skew, FedBB before others; None without one."""
    fitting = [
        part
        for part in comparison.methods
        if not part.runs[0].federation.hidden
        and all(client.dispersion is not None for client in part.runs[0].federation.known)
    ]
    return min(fitting, key=lambda part: part.method != "fedbb", default=None)


@themed
def plot_weights(comparison: Comparison, part: MethodRuns) -> Figure:
    """Draw each client's weight by size beside its weight by CBR, the most even client on top."""
    run = part.runs[0]
    clients = _choose(run.federation.known)
    mark = marks_of(comparison.methods)[comparison.methods.index(part)]
    keys = [
        Patch(color=MUTED, alpha=0.55, label="by size, as FedAvg"),
        Patch(color=mark.color, label=f"by {elide(part.label, 20)} (CBR)"),
    ]
    title = "Client weights before and after CBR"
    note = f"{elide(comparison.title, 54)}; seed {run.recipe.seed}\n"
    note += _weights_note(clients, run.federation.known)
    figure, axes = new_figure(Heading(title, note, keys), 0.36 * len(clients) + 0.45)
    before = np.array([client.weight_by_samples for client in clients])
    after = np.array([client.weight for client in clients])
    axes.set_xlim(0, 120 * max(before.max(), after.max()))
    _draw_weights(axes, before, MUTED, Rows(-0.19, 0.36))
    _draw_weights(axes, after, mark.color, Rows(0.19, 0.36))
    label_rows(axes, [f"client {client.client}" for client in clients], _facts(clients))
    axes.set_xlabel("weight in the merged model, %")
    return figure


def _choose(clients: Sequence[KnownClient]) -> list[KnownClient]:
    """Return the clients from even to uneven; of very many, those whose weight changes most."""
    changed = sorted(clients, key=lambda client: -abs(client.weight - client.weight_by_samples))
    return sorted(changed[:MOST_CLIENTS], key=lambda client: client.dispersion or 0.0)


def _weights_note(shown: Sequence[KnownClient], clients: Sequence[KnownClient]) -> str:
    if len(shown) == len(clients):
        return "R: dispersion of labels, small if even"
    return f"R: dispersion of labels; the {len(shown)} of {len(clients)} clients that change most"


def _facts(clients: Sequence[KnownClient]) -> list[str]:
    return [f"{client.samples:,} samples, R {client.dispersion:.3f}" for client in clients]


def _draw_weights(axes: Axes, weights: FloatArray, color: str, rows: Rows) -> None:
    places = np.arange(len(weights)) + rows.offset
    alpha = 0.55 if color == MUTED else 1.0
    axes.barh(places, 100 * weights, height=rows.height * 0.94, color=color, alpha=alpha)
    gap = 0.01 * axes.get_xlim()[1]
    for place, weight in zip(places, weights, strict=True):
        axes.text(
            100 * weight + gap, place, f"{100 * weight:.1f}", va="center", size=7.5, color=MUTED
        )
