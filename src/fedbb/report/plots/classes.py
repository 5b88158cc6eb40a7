"""Classes: differences to FedAvg from head to tail, and shares of the loss before and after PNB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedbb._util.table import elide
from fedbb.losses.pnb import PNB, weigh
from fedbb.methods import build_method
from fedbb.recipes.spec import PythonRecipe
from fedbb.records import FloatArray, IntArray, LabelCounts, Task
from fedbb.report.groups import BASE, Comparison, MethodRuns
from fedbb.report.labels import capitalize, metric_title
from fedbb.report.plots.canvas import (
    BLUE,
    GRID,
    MUTED,
    ORANGE,
    SURFACE,
    Heading,
    new_figure,
    new_panels,
    themed,
)
from fedbb.report.plots.marks import Mark, marks_of, point_look
from fedbb.report.plots.rows import class_rows, label_rows
from fedbb.report.results import RunResult, summary_of
from fedbb.report.statistics import spread_columns, subtract_by_seed
from fedbb.runs.metadata import FederationRecord, KnownClient

SIZE = 5.0
PANEL_WIDTH = 7.0


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
        _draw_gains(axes, class_gains(part, base, metric, rows.classes), marks[part], offset)
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


def _draw_gains(axes: Axes, gains: FloatArray, mark: Mark, offset: float) -> None:
    means, deviations = spread_columns(gains)
    places = np.arange(len(means)) + offset
    reach = np.nan_to_num(deviations)
    axes.errorbar(means, places, xerr=reach, elinewidth=0.9, **point_look(mark, SIZE))


@dataclass(frozen=True, eq=False)
class Shares:
    """What part of the whole loss comes from each class, positive and negative cases, both (C,)."""

    title: str
    positive: FloatArray
    negative: FloatArray


def weighed_part(comparison: Comparison) -> tuple[MethodRuns, PNB] | None:
    """Return the method with the PNB loss, FedBB before others, and its spec; None without one."""
    found = []
    for part in comparison.methods:
        method = part.runs[0].recipe.method
        if isinstance(part.runs[0].recipe, PythonRecipe) or method.loss is not None:
            continue  # its method or loss may be one that has no name here
        loss = build_method(method.name, method.options).loss
        if isinstance(loss, PNB) and not part.runs[0].federation.hidden:
            found.append((part, loss))
    return min(found, key=lambda pair: pair[0].method != "fedbb", default=None)


def loss_shares(federation: FederationRecord, spec: PNB) -> list[Shares]:
    """Return the shares before PNB, after its factor between cases, and after both its factors.

    Each entry counts as if its plain loss were one. Clients weigh by their own counts, and are
    added up. A multi-class loss has no negative cases, hence one factor and no middle panel.
    """
    single = federation.task is Task.MULTICLASS
    total = np.zeros((3, 2, len(federation.classes)))
    for client in federation.known:
        counts = _counts(client)
        weights = weigh(spec, counts, federation.task)
        held = np.stack([counts.positive, 0 * counts.negative if single else counts.negative])
        total[0] += held
        total[1] += held * np.stack([weights.alpha_positive, weights.alpha_negative])
        total[2] += held * np.stack([weights.positive, weights.negative])
    titles = ["plain loss", "after balancing cases", "after cases and classes"]
    if single:
        titles, total = ["plain loss", "with PNB"], total[[0, 2]]
    return [Shares(title, *_normalize(part)) for title, part in zip(titles, total, strict=True)]


@themed
def plot_shares(comparison: Comparison, part: MethodRuns, spec: PNB) -> Figure:
    """Draw the share of each class in the loss, most frequent class on top."""
    run = part.runs[0]
    shares = loss_shares(run.federation, spec)
    rows = class_rows(comparison)
    keys = [
        Patch(color=BLUE, label="positive cases"),
        Patch(facecolor=ORANGE, edgecolor=SURFACE, hatch="////", label="negative cases"),
    ]
    single = run.federation.task is Task.MULTICLASS
    note = f"{elide(comparison.title, 80)}; {elide(part.label, 24)}, seed {run.recipe.seed}\n"
    note += "all clients, each with its own weights; training cases under each name"
    heading = Heading("Share of the loss before and after PNB", note, [] if single else keys)
    titles = [share.title for share in shares]
    height = 0.3 * len(rows.names) + 0.75
    figure, panels = new_panels(heading, height, titles, PANEL_WIDTH)
    reach = 1.12 * max(_sums(share, rows.classes).max() for share in shares)
    for axes, share in zip(panels, shares, strict=True):
        _draw_shares(axes, share, rows.classes)
        axes.set_xlim(0, 100 * reach if reach > 0 else 1)
        axes.set_xlabel("% of the loss")
    label_rows(panels[0], rows.names, rows.counts)
    for axes in panels[1:]:
        label_rows(axes, [""] * len(rows.names), [""] * len(rows.names))
    return figure


def _counts(client: KnownClient) -> LabelCounts:
    positive = np.array(client.positives, dtype=np.float64)
    # A folder does not tell which labels are unknown; they count as negative here.
    return LabelCounts(positive, np.maximum(client.samples - positive, 0.0), client.samples)


def _normalize(total: FloatArray) -> FloatArray:
    whole = total.sum()
    return total / whole if whole > 0 else total


def _sums(share: Shares, classes: Sequence[IntArray]) -> FloatArray:
    return _by_row(share.positive, classes) + _by_row(share.negative, classes)


def _by_row(values: FloatArray, classes: Sequence[IntArray]) -> FloatArray:
    return np.array([values[some].sum() for some in classes])


def _draw_shares(axes: Axes, share: Shares, classes: Sequence[IntArray]) -> None:
    positive = 100 * _by_row(share.positive, classes)
    negative = 100 * _by_row(share.negative, classes)
    places = np.arange(len(classes))
    axes.barh(places, positive, height=0.72, color=BLUE)
    if negative.any():
        bars = axes.barh(places, negative, left=positive, height=0.72, color=ORANGE)
        for bar in bars:
            bar.set(edgecolor=SURFACE, hatch="////", linewidth=0)
