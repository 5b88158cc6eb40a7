"""Draws the study's figures for docs/figures: scores by method and data, by rate, by round."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedbb.report.plots.canvas import (
    BLUE,
    GREEN,
    MUTED,
    ORANGE,
    PURPLE,
    VERMILION,
    WIDTH,
    Heading,
    new_panels,
    save_png,
    themed,
)
from fedbb.report.statistics import spread_of
from studies import published, winner
from studies.convergence import curves_by_seed, read_curves
from studies.stored import RESULTS, ROOT, StoredGrid, read_stored
from studies.tables import measure_title

FIGURES = ROOT / "docs" / "figures"
METHODS = {
    "FedAvg": ("o", BLUE),
    "FedLC": ("^", PURPLE),
    "FedBB": ("D", GREEN),
    "FedBB, unit mean weight": ("s", ORANGE),
}
APART = 0.04
"""How far apart the methods of one rate stand, in steps between rates, so that none is hidden."""

KINDS = {"baselines": ("o", BLUE), "control": ("s", ORANGE), "FedBB and its parts": ("D", GREEN)}
BY_ROW = {
    "natural-images": ("test accuracy", "CIFAR-10 by label skew"),
    "chest-xrays": ("test auroc", "Chest X-rays by size and label skew"),
    "ablations": ("test accuracy", "Parts and settings of FedBB, CIFAR-10, δ = 0.1"),
    "plus-candidates": ("validation accuracy", "Candidates for a better FedBB"),
}
WINNER = "study-winner.png"
BY_ROUND = {
    "natural-images": ("test accuracy", "CIFAR-10: accuracy by round"),
    "chest-xrays": ("test auroc", "Chest X-rays: AUROC by round"),
    "niid-bench": ("test accuracy", "NIID-Bench's setting: accuracy by round"),
}
LINES = {
    "FedAvg": ("-", BLUE),
    "FedAvg-scaled (control)": ("--", ORANGE),
    "FedLC": ("-", PURPLE),
    "FedBB": ("-", GREEN),
    "FedBB-plus": ("-.", VERMILION),
}
PUBLISHED_LINES = {
    "FedProx, μ = 0.001": (":", PURPLE),
    "SCAFFOLD": ("-", MUTED),
    "FedNova": ("--", BLUE),
}
"""Further methods where published figures are the measure."""

BY_RATE = {
    "rates-small-cnn": ("validation accuracy", "Rates, small CNN, CIFAR-10"),
    "rates-resnet11": ("validation accuracy", "Rates, ResNet-11, CIFAR-10"),
    "rates-chest": ("validation auroc", "Rates, small CNN, chest X-rays"),
}


def main() -> None:
    """Draw the figures of all grids with stored results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=FIGURES)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    kinds = ((BY_ROW, by_row, "study"), (BY_RATE, by_rate, "study"), (BY_ROUND, by_round, "curves"))
    for drawings, draw, kind in kinds:
        for name, (measure, title) in drawings.items():
            stored = read_stored(name, options.results)
            if stored is not None:
                path = options.out / f"{kind}-{name}.png"
                save_png(draw(stored, measure, title), path)
                print("written to", path)
    chosen = winner.choose(options.results)
    if chosen is not None:
        save_png(by_setting(chosen, options.results), options.out / WINNER)
        print("written to", options.out / WINNER)


@themed
def by_row(stored: StoredGrid, measure: str, title: str) -> Figure:
    """Draw a measure of every row, a panel for each column; small dots are seeds."""
    labels = stored.grid.axes[stored.grid.rows]
    places = stored.places()
    width = WIDTH * max(1.0, 0.55 * len(places) + 0.35)
    keys = [
        Line2D([], [], color=color, marker=marker, label=kind, linestyle="", markersize=6.0)
        for kind, (marker, color) in KINDS.items()
        if kind in map(_kind, labels)
    ]
    note = _dots(stored, "large ones")
    if len(places) > 1:
        note += "; each panel has its own scale"
    heading = Heading(title, note, keys)
    titles = [", ".join(at.values()) for at in places]
    figure, panels = new_panels(heading, 0.24 * len(labels) + 0.6, titles, width)
    for number, (axes, at) in enumerate(zip(panels, places, strict=True)):
        notes: list[tuple[int, list[float], str]] = []
        for height, label in enumerate(labels):
            spot = {stored.grid.rows: label, **at}
            values = [100 * value for value in stored.scores(measure, spot).values()]
            if len(values) > 1:
                dots = [height] * len(values)
                axes.plot(values, dots, "o", color=MUTED, markersize=2.5, zorder=3)
            if values:
                (marker, color), mean = KINDS[_kind(label)], spread_of(values).mean
                axes.plot([mean], [height], marker, color=color, markersize=6.0)
            if lost := stored.count_diverged(spot):
                notes.append((height, values, f"{lost} diverged"))
        for height, values, note in notes:
            _note(axes, height, values, note)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=True))
        if not axes.lines:
            axes.set_xticks([])
            axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color=MUTED)
        axes.set_yticks(range(len(labels)), labels if number == 0 else [""] * len(labels))
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlabel(_axis(measure))
    return figure


@themed
def by_setting(chosen: winner.Winner, results: Path = RESULTS) -> Figure:
    """Draw the chosen method below its rivals, a panel for each setting with results."""
    scores = {
        setting: [winner.read_scores(setting, measure, results) for measure in winner.MEASURES]
        for setting in winner.SETTINGS
    }
    found = [setting for setting, (whole, _) in scores.items() if chosen.at(setting) in whole]
    keys = [
        Line2D([], [], color=MUTED, marker="o", linestyle="", markersize=6.0, label=label, mfc=face)
        for label, face in (("all classes", MUTED), ("worst class", "none"))
    ]
    seeds = {len(scores[setting][0][chosen.at(setting)]) for setting in found}
    number = " or ".join(map(str, sorted(seeds)))
    note = f"test data, {number} seeds; small dots: seeds, large ones: their mean; own scales"
    heading = Heading("Accuracy (AUROC on X-rays) of all classes and of the worst", note, keys)
    names = [*winner.RIVALS, winner.NAME]
    titles = [setting.title.replace(", ", "\n", 1) for setting in found]
    width = WIDTH * (0.33 * len(found) + 0.35)
    figure, panels = new_panels(heading, 0.24 * len(names) + 0.6, titles, width)
    for place, (axes, setting) in enumerate(zip(panels, found, strict=True)):
        rows = [*((rival, winner.TRAINED) for rival in winner.RIVALS), chosen.at(setting)]
        for height, (row, name) in enumerate(zip(rows, names, strict=True)):
            _measures(axes, height, name, [of.get(row, {}) for of in scores[setting]])
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=True))
        axes.set_yticks(range(len(names)), names if place == 0 else [""] * len(names))
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel("points")
    return figure


def _measures(axes: Axes, height: int, name: str, scores: Sequence[Mapping[int, float]]) -> None:
    """Draw the scores of all classes, filled, and of the worst one, hollow, in a row of a panel."""
    marker, color = ("*", VERMILION) if name == winner.NAME else KINDS[_kind(name)]
    for by_seed, face in zip(scores, (color, "none"), strict=True):
        values = [100 * value for value in by_seed.values()]
        if values:
            axes.plot(values, [height] * len(values), "o", color=MUTED, markersize=2.0)
            mean, size = spread_of(values).mean, 9.0 if name == winner.NAME else 6.0
            axes.plot([mean], [height], marker, color=color, mfc=face, markersize=size)


@themed
def by_rate(stored: StoredGrid, measure: str, title: str) -> Figure:
    """Draw a measure over the learning rates, a line for each row; small dots are seeds."""
    (axis,) = stored.grid.columns
    rates, labels = stored.grid.axes[axis], stored.grid.axes[stored.grid.rows]
    keys = []
    for label in labels:
        marker, color = METHODS[label]
        keys.append(Line2D([], [], color=color, marker=marker, label=label, markersize=5.0))
    lost = Counter((row[axis], row[stored.grid.rows]) for row in stored.diverged)
    diverged = [f"{label} {number} at {rate}" for (rate, label), number in lost.items()]
    notes = [_dots(stored, "lines"), *([f"diverged: {'; '.join(diverged)}"] if diverged else [])]
    heading = Heading(title, "\n".join(notes), keys)
    figure, (axes,) = new_panels(heading, 2.6, [""], 1.5 * WIDTH)
    for number, (key, label) in enumerate(zip(keys, labels, strict=True)):
        points, aside = [], APART * (number - (len(labels) - 1) / 2)
        for place, rate in enumerate(rates):
            at = {stored.grid.rows: label, axis: rate}
            values = [100 * value for value in stored.scores(measure, at).values()]
            dots = [place + aside] * len(values)
            axes.plot(dots, values, "o", color=key.get_color(), markersize=2.5)
            if values:
                points.append((place + aside, spread_of(values).mean))
        axes.plot(
            [place for place, _ in points],
            [mean for _, mean in points],
            color=key.get_color(),
            marker=key.get_marker(),
            markersize=5.0,
        )
    axes.set_xticks(range(len(rates)), rates)
    axes.set_xlabel("learning rate")
    axes.set_ylabel(_axis(measure))
    return figure


@themed
def by_round(stored: StoredGrid, measure: str, title: str) -> Figure:
    """Draw a measure over the rounds, a line for each method: mean over seeds, and range.

    Methods and columns without results are left out.
    """
    curves = read_curves(stored, measure.split()[1])
    rows = stored.grid.rows
    places = [at for at in stored.places() if curves_by_seed(stored, curves, at)]
    lines = {**LINES, **PUBLISHED_LINES} if stored.name == published.GRID else LINES
    labels = [label for label in lines if curves_by_seed(stored, curves, {rows: label})]
    keys = [
        Line2D([], [], linestyle=lines[label][0], color=lines[label][1], label=label)
        for label in labels
    ]
    width = WIDTH * max(1.0, 0.55 * len(places) + 0.35)
    note = "lines: mean over seeds; shaded: range of seeds" + "; own scales" * (len(places) > 1)
    titles = [", ".join(at.values()) for at in places]
    figure, panels = new_panels(Heading(title, note, keys), 2.4, titles, width)
    for axes, at in zip(panels, places, strict=True):
        for label in labels:
            found = curves_by_seed(stored, curves, {rows: label, **at})
            if not found:
                continue
            points = 100 * np.array(list(found.values()))
            rounds = np.arange(1, points.shape[1] + 1)
            style, color = lines[label]
            axes.fill_between(
                rounds, points.min(0), points.max(0), color=color, alpha=0.12, linewidth=0
            )
            axes.plot(rounds, points.mean(0), style, color=color, linewidth=1.4)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("round")
    panels[0].set_ylabel(_axis(measure))
    return figure


def _dots(stored: StoredGrid, means: str) -> str:
    """Tell what the dots are, and what has too few seeds for them."""
    seeds = Counter(tuple(row[axis] for axis in stored.grid.axes) for row in stored.cells)
    if set(seeds.values()) == {1}:
        return "last round; one seed"
    alone = "; alone: one seed" if 1 in seeds.values() else ""
    return f"last round; small dots: seeds, {means}: their mean{alone}"


def _note(axes: Axes, height: int, values: Sequence[float], note: str) -> None:
    """Write a note in a row of a finished panel, on the side where its dots are not."""
    low, high = axes.get_xlim()
    left = bool(values) and max(values) > (low + high) / 2
    place, align = (0.02, "left") if left else (0.98, "right")
    side = axes.get_yaxis_transform()
    axes.text(place, height, note, transform=side, ha=align, va="center", color=MUTED)


def _kind(label: str) -> str:
    if "control" in label:
        return "control"
    base = label.startswith(("Fed", "MOON")) and not label.startswith("FedBB")
    return "baselines" if base else "FedBB and its parts"


def _axis(measure: str) -> str:
    return f"{measure_title(measure)}, points"


if __name__ == "__main__":
    main()
