"""Client weights before and after CBR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedbb.records import FloatArray
from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.plots.canvas import MUTED, Heading, new_figure, themed
from fedbb.report.plots.marks import marks_of
from fedbb.report.plots.rows import Rows, label_rows
from fedbb.report.results import ClientShare
from fedbb.report.table import elide

MOST_CLIENTS = 24


def balanced_part(comparison: Comparison) -> MethodRuns | None:
    """Return the method whose weights look at label skew, FedBB before others; None without one."""
    fitting = [
        part
        for part in comparison.methods
        if not part.runs[0].federation.hidden
        and all(client.dispersion is not None for client in part.runs[0].federation.clients)
    ]
    return min(fitting, key=lambda part: part.method != "fedbb", default=None)


@themed
def plot_weights(comparison: Comparison, part: MethodRuns) -> Figure:
    """Draw each client's weight by size beside its weight by CBR, the most even client on top."""
    run = part.runs[0]
    clients = _choose(run.federation.clients)
    mark = marks_of(comparison.methods)[comparison.methods.index(part)]
    keys = [
        Patch(color=MUTED, alpha=0.55, label="by size, as FedAvg"),
        Patch(color=mark.color, label=f"by {elide(part.label, 20)} (CBR)"),
    ]
    title = "Client weights before and after CBR"
    note = f"{elide(comparison.title, 54)}; seed {run.recipe.seed}\n"
    note += _note(clients, run.federation.clients)
    figure, axes = new_figure(Heading(title, note, keys), 0.36 * len(clients) + 0.45)
    before = np.array([client.weight_by_samples for client in clients])
    after = np.array([client.weight for client in clients])
    axes.set_xlim(0, 120 * max(before.max(), after.max()))
    _draw(axes, before, MUTED, Rows(-0.19, 0.36))
    _draw(axes, after, mark.color, Rows(0.19, 0.36))
    label_rows(axes, [f"client {client.client}" for client in clients], _facts(clients))
    axes.set_xlabel("weight in the merged model, %")
    return figure


def _choose(clients: Sequence[ClientShare]) -> list[ClientShare]:
    """Return the clients from even to uneven; of very many, those whose weight changes most."""
    changed = sorted(clients, key=lambda client: -abs(client.weight - client.weight_by_samples))
    return sorted(changed[:MOST_CLIENTS], key=lambda client: client.dispersion or 0.0)


def _note(shown: Sequence[ClientShare], clients: Sequence[ClientShare]) -> str:
    if len(shown) == len(clients):
        return "R: dispersion of labels, small if even"
    return f"R: dispersion of labels; the {len(shown)} of {len(clients)} clients that change most"


def _facts(clients: Sequence[ClientShare]) -> list[str]:
    return [f"{client.samples:,} samples, R {client.dispersion:.3f}" for client in clients]


def _draw(axes: Axes, weights: FloatArray, color: str, rows: Rows) -> None:
    places = np.arange(len(weights)) + rows.offset
    alpha = 0.55 if color == MUTED else 1.0
    axes.barh(places, 100 * weights, height=rows.height * 0.94, color=color, alpha=alpha)
    gap = 0.01 * axes.get_xlim()[1]
    for place, weight in zip(places, weights, strict=True):
        axes.text(
            100 * weight + gap, place, f"{100 * weight:.1f}", va="center", size=7.5, color=MUTED
        )
