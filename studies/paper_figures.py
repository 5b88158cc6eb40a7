"""Draws the ideas of two of the paper's figures: PNB's weights by label set, and FedBB's process.

python -m studies.paper_figures Data_Entry_2017.csv
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from fedbb.analysis.label_files import read_label_table
from fedbb.imbalance import client_weights
from fedbb.losses.pnb import PNB, weigh
from fedbb.records import FloatArray, IntArray, LabelCounts, Task
from fedbb.report.plots.canvas import (
    BLUE,
    GREEN,
    MUTED,
    ORANGE,
    PURPLE,
    WIDTH,
    Heading,
    new_panels,
    save_png,
    themed,
)
from studies.figures import FIGURES

CHEST = PNB(beta=0.9999999, tau=10.0, mu=4.0)
"""The paper's options for chest X-rays."""

EXAMPLE = (0.40, 0.15, 0.05)
"""Prevalence of three classes, independent of each other, as in the paper's example."""

COLORS = (MUTED, BLUE, GREEN, ORANGE, PURPLE)
"""By number of positive classes; the last for more."""

NAMED = ("Infiltration", "Hernia")
"""The most and the least frequent finding."""


CLIENTS = np.array([[400, 350, 250], [900, 90, 10], [15, 10, 75]], dtype=np.float64)
"""Label counts of three clients: even, dominated by one class, and small."""


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Every set of classes that samples have.

    Attributes:
        sets: 1 for the classes of each set, (S, C).
        samples: number of samples with each set, (S,).
        weights: PNB's mean weight over the classes of such a sample, relative to the mean over all
            samples, (S,).
    """

    sets: FloatArray
    samples: FloatArray
    weights: FloatArray


def weigh_sets(sets: FloatArray, samples: FloatArray, loss: PNB = CHEST) -> LabelSets:
    """Return the weights that PNB gives to label sets, bound to the counts of all samples."""
    positive, total = samples @ sets, float(samples.sum())
    counts = LabelCounts(positive, total - positive, round(total))
    found = weigh(loss, counts, Task.MULTILABEL)
    weights = (sets * found.positive + (1 - sets) * found.negative).mean(axis=1)
    return LabelSets(sets, samples, weights / (weights @ samples / total))


def example_sets(samples: int = 10_000) -> LabelSets:
    """Return the eight label sets of three independent classes, the most frequent one first."""
    sets = np.array(list(product((0.0, 1.0), repeat=len(EXAMPLE))))
    chances = np.prod(np.where(sets == 1, EXAMPLE, 1 - np.array(EXAMPLE)), axis=1)
    order = np.argsort(-chances)
    return weigh_sets(sets[order], samples * chances[order])


def table_sets(path: Path) -> tuple[LabelSets, tuple[str, ...]]:
    """Return the label sets of a table of labels, and its classes."""
    labels = read_label_table(path).labels
    samples = np.bincount(labels.pattern, minlength=len(labels.patterns)).astype(np.float64)
    return weigh_sets(labels.patterns.astype(np.float64), samples), labels.classes


def rank_correlation(made: LabelSets) -> float:
    """Return Spearman's correlation of frequency and weight over label sets."""
    ranks = [_ranks(values) for values in (made.samples, made.weights)]
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: FloatArray) -> FloatArray:
    """Return the rank of each value; equal values share their mean rank."""
    _, places, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    return np.asarray((ends - (sizes - 1) / 2)[places])


@themed
def by_label_set(path: Path) -> Figure:
    """Draw PNB's weight of a sample by the frequency of its label set."""
    example, (films, classes) = example_sets(), table_sets(path)
    note = (
        "weight of a sample, relative to the mean over all samples; "
        f"{films.samples.sum():,.0f} films, {len(films.samples)} label sets,\n"
        f"rank correlation of frequency and weight {rank_correlation(films):.2f}; "
        "PNB with the paper's options"
    )
    titles = ["three independent classes", "NIH ChestX-ray14"]
    keys = [
        Line2D([], [], color=color, marker="o", linestyle="", markersize=5.0, label=label)
        for label, color in zip(
            ("none", "one", "two", "three", "more classes"), COLORS, strict=True
        )
    ]
    heading = Heading("PNB's weights by label set", note.replace("-0", "−0"), keys)
    figure, (left, right) = new_panels(heading, 2.6, titles, 1.75 * WIDTH)
    _draw_example(left, example)
    _draw_films(right, films, classes)
    return figure


def _draw_example(axes: Axes, made: LabelSets) -> None:
    names = ["".join(n for n, held in zip("xyz", row, strict=True) if held) for row in made.sets]
    heights = range(len(names))
    colors = [COLORS[number] for number in made.sets.sum(axis=1).astype(int)]
    axes.barh(heights, made.weights, color=colors, height=0.66)
    share = made.samples / made.samples.sum()
    labels = [
        f"{name or 'none'}  {100 * part:.3g} %" for name, part in zip(names, share, strict=True)
    ]
    axes.set_yticks(heights, labels)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("weight of a sample")
    shown = ", ".join(f"{name} {100 * part:g} %" for name, part in zip("xyz", EXAMPLE, strict=True))
    axes.text(
        0.98, 0.98, shown, transform=axes.transAxes, ha="right", va="top", color=MUTED, size=7.5
    )


def _draw_films(axes: Axes, made: LabelSets, classes: tuple[str, ...]) -> None:
    findings = made.sets.sum(axis=1).astype(int)
    for number in range(int(findings.max()), -1, -1):
        chosen, few = findings == number, number < 2
        axes.plot(
            made.samples[chosen],
            made.weights[chosen],
            "o",
            color=COLORS[min(number, len(COLORS) - 1)],
            markersize=4.5 if few else 3.0,
            alpha=1.0 if few else 0.6,
            markeredgewidth=0,
        )
    for places, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        places.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        places.set_minor_formatter(NullFormatter())
    axes.set_yticks([0.5, 1, 2, 4, 8])
    axes.set_ylim(0.4, 9)
    axes.set_xticks([1, 10, 100, 1000, 10_000])
    axes.set_xlabel("films with this label set")
    axes.set_ylabel("weight of a film")
    single = {name: _single(findings, made.sets[:, at]) for at, name in enumerate(classes)}
    named = {name: single[name] for name in NAMED} | {"no finding": int(findings.argmin())}
    for name, place in named.items():
        spot = (float(made.samples[place]), float(made.weights[place]))
        axes.annotate(
            name, spot, (-5, -1), textcoords="offset points", ha="right", va="top", size=7.5
        )


def _single(findings: IntArray, held: FloatArray) -> int:
    """Return the row of the set that has this class alone."""
    return int(np.flatnonzero((findings == 1) & (held == 1))[0])


@themed
def process() -> Figure:
    """Draw what FedBB makes of the labels of three clients: weights of classes, then of clients."""
    steps = (
        "Once: each client counts its labels and sends its number of samples and 1/R; "
        "the server sets the weights of the clients (CBR).\n"
        "Every round: clients train the global model with PNB loss, each with weights from its own "
        "counts; the server merges the models by these weights."
    )
    titles = [
        f"client {place + 1}: {counts.sum():,.0f} samples" for place, counts in enumerate(CLIENTS)
    ]
    keys = [
        Patch(color=color, label=label)
        for color, label in (
            (MUTED, "labels, % of the client's"),
            (BLUE, "PNB's weight of a sample"),
            (ORANGE, "weight of a client by samples"),
            (GREEN, "by CBR"),
        )
    ]
    heading = Heading("How FedBB works", steps, keys)
    figure, panels = new_panels(heading, 1.9, [*titles, "server: weights of clients"], 2 * WIDTH)
    for axes, counts in zip(panels, CLIENTS, strict=False):
        _draw_client(axes, counts)
    _draw_server(panels[-1])
    return figure


def _draw_client(axes: Axes, counts: FloatArray) -> None:
    """Draw the share of each class at a client, and what PNB makes of it."""
    label_counts = LabelCounts(counts, counts.sum() - counts, round(counts.sum()))
    weights = weigh(PNB(mu="unit"), label_counts, Task.MULTICLASS).positive
    share = 100 * counts / counts.sum()
    places = np.arange(len(counts))
    axes.bar(places - 0.2, share, width=0.36, color=MUTED)
    for place, part in zip(places, share, strict=True):
        axes.text(place - 0.2, part + 2, f"{part:.3g}", ha="center", size=7.5, color=MUTED)
    axes.set_ylim(0, 125)
    axes.set_yticks([])
    axes.grid(visible=False)
    twin = axes.twinx()
    twin.set_ylim(0, 7.5)
    twin.set_axis_off()
    held = counts > 0
    twin.bar(places[held] + 0.2, weights[held], width=0.36, color=BLUE)
    for place, weight in zip(places[held], weights[held], strict=True):
        twin.text(place + 0.2, weight + 0.12, f"{weight:.2f}", ha="center", size=7.5, color=BLUE)
    axes.set_xticks(places, [f"class {place + 1}" for place in places])


def _draw_server(axes: Axes) -> None:
    """Draw the weight of each client, by samples and by CBR."""
    places = np.arange(len(CLIENTS))
    for side, color, gamma in ((-0.2, ORANGE, 0.0), (0.2, GREEN, 1.0)):
        weights = 100 * client_weights(CLIENTS, gamma=gamma)
        axes.bar(places + side, weights, width=0.36, color=color)
        for place, weight in zip(places, weights, strict=True):
            axes.text(place + side, weight + 2, f"{weight:.0f}", ha="center", size=7.5, color=color)
    axes.set_ylim(0, 125)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_xticks(places, [f"client {place + 1}" for place in places])


def main() -> None:
    """Draw both figures into docs/figures; without a label table only the second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labels", type=Path, nargs="?", help="the label table of ChestX-ray14")
    parser.add_argument("--out", type=Path, default=FIGURES)
    options = parser.parse_args()
    drawn = {"process": process()}
    if options.labels is not None:
        drawn["label-sets"] = by_label_set(options.labels)
    for name, figure in drawn.items():
        save_png(figure, options.out / f"{name}.png")
        print("written to", options.out / f"{name}.png")


if __name__ == "__main__":
    main()
