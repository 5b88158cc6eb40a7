"""The figures of a comparison: scores by round and over time, classes, clients and partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

from fedbb._util.table import elide
from fedbb.losses.pnb import PNB, weigh
from fedbb.methods import build_method
from fedbb.recipes.spec import PythonRecipe
from fedbb.records import FloatArray, IntArray, LabelCounts, Task
from fedbb.report.groups import BASE, Comparison, MethodRuns
from fedbb.report.plots.canvas import (
    BLUE,
    GRID,
    INK,
    MUTED,
    ORANGE,
    SURFACE,
    Heading,
    Mark,
    Rows,
    class_order,
    class_rows,
    label_rows,
    marks_of,
    new_figure,
    new_panels,
    point_look,
    themed,
)
from fedbb.report.results import RunResult, score_on_test, scores_by_round, summary_of
from fedbb.report.statistics import Spread, spread_columns, spread_of, subtract_by_seed
from fedbb.report.text import capitalize, metric_title
from fedbb.runs.metadata import FederationRecord, KnownClient

SIZE = 7.5
FAR_APART = 6.0
"""If the slowest method takes this many times the fastest, the axis of time is logarithmic."""


POINT = 5.0
PANEL_WIDTH = 7.0
MOST_COLUMNS = 14
MOST_ROWS = 24
MOST_CLIENTS = 24
FAINTEST, STRONGEST = 0.07, 0.72


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
        Line2D([], [], label=elide(part.label, 28), **point_look(marks[part], POINT))
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
    axes.errorbar(means, places, xerr=reach, elinewidth=0.9, **point_look(mark, POINT))


@dataclass(frozen=True, eq=False)
class LossShares:
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


def loss_shares(federation: FederationRecord, spec: PNB) -> list[LossShares]:
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
    return [LossShares(title, *_normalize(part)) for title, part in zip(titles, total, strict=True)]


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


def _sums(share: LossShares, classes: Sequence[IntArray]) -> FloatArray:
    return _by_row(share.positive, classes) + _by_row(share.negative, classes)


def _by_row(values: FloatArray, classes: Sequence[IntArray]) -> FloatArray:
    return np.array([values[some].sum() for some in classes])


def _draw_shares(axes: Axes, share: LossShares, classes: Sequence[IntArray]) -> None:
    positive = 100 * _by_row(share.positive, classes)
    negative = 100 * _by_row(share.negative, classes)
    places = np.arange(len(classes))
    axes.barh(places, positive, height=0.72, color=BLUE)
    if negative.any():
        bars = axes.barh(places, negative, left=positive, height=0.72, color=ORANGE)
        for bar in bars:
            bar.set(edgecolor=SURFACE, hatch="////", linewidth=0)


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
