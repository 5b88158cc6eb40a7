"""The look of the figures: theme, headings, a mark for each method, and rows of classes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from fedbb._util.files import replacing
from fedbb._util.table import elide
from fedbb.records import FloatArray, IntArray
from fedbb.report import statistics
from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.results import class_counts

INK = "#1d2433"
MUTED = "#5a6478"
GRID = "#dde2ea"
SURFACE = "#fefefe"
BLUE = "#00589b"
ORANGE = "#d67c00"
GREEN = "#0f9d78"
PURPLE = "#c870ab"
VERMILION = "#9c2f05"
SKY = "#2f9bd3"

# Any, because matplotlib's stubs list every key, and other ones in every version.
THEME: Any = {
    "figure.facecolor": SURFACE,
    "axes.facecolor": SURFACE,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "text.color": INK,
    "text.parse_math": False,
    "text.usetex": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    # Letters as shapes look the same without the font.
    "svg.fonttype": "path",
    "svg.hashsalt": "fedbb",
}
WIDTH = 4.2
DOTS_PER_INCH = 200
_LINE = 0.19
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))

themed = matplotlib.rc_context(THEME)


MOST_CLASSES = 24
BINS = 10


@dataclass(frozen=True)
class Heading:
    """What a figure shows, and of what; `keys` explain its colors."""

    title: str
    note: str
    keys: Sequence[Artist] = ()


def new_figure(heading: Heading, height: float) -> tuple[Figure, Axes]:
    """Return a figure with its heading, and axes of this height, in inches, below it."""
    figure, (axes,) = new_panels(heading, height, [""])
    return figure, axes


def new_panels(
    heading: Heading, height: float, titles: Sequence[str], width: float = WIDTH
) -> tuple[Figure, list[Axes]]:
    """Return a figure with its heading, and axes below it, side by side, each with its title."""
    in_row = 3 if width < 1.5 * WIDTH else 5
    rows = -(-len(heading.keys) // in_row)
    notes = heading.note.split("\n")
    top = 0.34 + 0.15 * len(notes) + _LINE * rows + (0.06 if rows else 0.0)
    total = height + top
    engine = ConstrainedLayoutEngine(rect=(0.0, 0.0, 1.0, height / total))
    figure = Figure(figsize=(width, total), layout=engine)
    left = 0.012 * WIDTH / width
    figure.text(left, 1 - 0.06 / total, heading.title, va="top", size=10.5, weight="bold")
    for number, note in enumerate(notes):
        place = 1 - (0.29 + 0.15 * number) / total
        figure.text(left, place, note, va="top", size=8, color=MUTED)
    if rows:
        _add_keys(figure, heading.keys, (0.0, (height + _LINE * rows + 0.06) / total), in_row)
    panels = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for axes, title in zip(panels, titles, strict=True):
        if title:
            axes.set_title(title, loc="left", size=8.5, color=INK)
    return figure, panels


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    with replacing(path) as file:
        file.write(_render(figure, "png"))


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure as an SVG file that stands alone."""
    with replacing(path) as file:
        file.write(_render(figure, "svg"))


def _add_keys(
    figure: Figure, keys: Sequence[Artist], place: tuple[float, float], in_row: int
) -> None:
    figure.legend(
        handles=list(keys),
        loc="upper left",
        bbox_to_anchor=place,
        ncols=in_row,
        frameon=False,
        borderpad=0.2,
        handlelength=2.2,
        columnspacing=1.4,
        labelspacing=0.35,
    )


def _render(figure: Figure, kind: str) -> bytes:
    target = io.BytesIO()
    metadata = _NO_METADATA if kind == "svg" else {"Software": None}
    with warnings.catch_warnings(), matplotlib.rc_context(THEME):
        # A class may be named in letters the font lacks; a box is better than a stopped report.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(target, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
    return target.getvalue()


@dataclass(frozen=True)
class Mark:
    """How one method is drawn; marker and line tell it apart where colors cannot."""

    color: str
    marker: str | tuple[int, int, int]
    line: str | tuple[int, tuple[int, ...]]


# Lengths of strokes and gaps, beside matplotlib's four kinds.
LONG, WIDE = (0, (8, 2)), (0, (1, 4))
METHOD_MARKS = {
    "fedavg": Mark(BLUE, "o", "-"),
    "fedavg-scaled": Mark(ORANGE, "s", "--"),
    "fedbb": Mark(GREEN, "D", "-"),
    "fedbb-printed": Mark(SKY, "v", "-."),
    "fedbb-plus": Mark(GREEN, (4, 1, 0), "--"),
    "pnb": Mark(PURPLE, "^", ":"),
    "cbr": Mark(VERMILION, "P", "--"),
    "fedprox": Mark(SKY, "<", "--"),
    "moon": Mark(PURPLE, ">", "-."),
    "fednova": Mark(MUTED, "X", ":"),
    "fedalign": Mark(INK, "h", "-."),
    "fedlc": Mark(VERMILION, "p", "-"),
    "focal": Mark(ORANGE, "d", ":"),
    "cb": Mark(INK, "8", "--"),
    "fedavgm": Mark(BLUE, (5, 1, 0), "--"),
    "fedadam": Mark(BLUE, (6, 1, 0), "-."),
    "fedyogi": Mark(BLUE, (3, 1, 0), ":"),
    "fedadagrad": Mark(SKY, (7, 1, 0), ":"),
    "scaffold": Mark(ORANGE, (9, 1, 0), "-"),
    "feddyn": Mark(ORANGE, (10, 1, 0), "-."),
    "bsm": Mark(VERMILION, (8, 1, 0), "-."),
    "fedrs": Mark(VERMILION, (3, 2, 0), ":"),
    "fedir": Mark(PURPLE, (4, 2, 0), "-"),
    "fedvc": Mark(PURPLE, (5, 2, 0), "--"),
    "feddecorr": Mark(GREEN, (6, 2, 0), "-."),
    "fed-rod": Mark(SKY, (7, 2, 0), "-"),
    "climb": Mark(INK, (8, 2, 0), "-"),
    "creff": Mark(MUTED, (7, 0, 0), "-"),
    "ccvr": Mark(MUTED, (9, 0, 0), "--"),
    "clip2fl": Mark(MUTED, (5, 0, 0), "-."),
    "symmetric": Mark(GREEN, (9, 2, 0), ":"),
    "evidential": Mark(INK, (10, 2, 0), ":"),
    "local": Mark(MUTED, (3, 1, 180), LONG),
    "fedper": Mark(BLUE, (4, 1, 45), LONG),
    "fedrep": Mark(SKY, (5, 1, 36), LONG),
    "fedbn": Mark(PURPLE, (6, 1, 30), LONG),
    "ditto": Mark(GREEN, (11, 1, 0), LONG),
    "isfl": Mark(ORANGE, (12, 1, 0), LONG),
    "pfedla": Mark(VERMILION, (3, 2, 180), LONG),
    "ripfl": Mark(INK, (4, 2, 45), LONG),
    "fedopt-sca": Mark(MUTED, (5, 2, 36), WIDE),
    "feddf": Mark(BLUE, (6, 2, 30), WIDE),
    "fedmd": Mark(SKY, (11, 2, 0), WIDE),
    "rhfl": Mark(PURPLE, (12, 2, 0), WIDE),
    "fedfusion": Mark(GREEN, (8, 0, 22), WIDE),
}
SPARE_MARKS = (
    Mark(MUTED, "*", "-"),
    Mark(PURPLE, "H", "--"),
    Mark(VERMILION, "*", ":"),
    Mark(SKY, "H", "-"),
    Mark(INK, "*", "-."),
    Mark(GREEN, "H", ":"),
    Mark(BLUE, "*", "--"),
    Mark(ORANGE, "H", "-."),
)


def marks_of(methods: Sequence[MethodRuns]) -> list[Mark]:
    """Return a mark for each method: its own, or a free one for unknown and second variants."""
    given: list[Mark] = []
    unknown = 0
    for part in methods:
        own = METHOD_MARKS.get(part.method)
        if own is None or own in given:
            own = SPARE_MARKS[unknown % len(SPARE_MARKS)]
            unknown += 1
        given.append(own)
    return given


def point_look(mark: Mark, size: float) -> dict[str, Any]:
    """Return how a mark looks as a point without a line."""
    return {
        "color": mark.color,
        "marker": mark.marker,
        "linestyle": "none",
        "markersize": size,
        "markeredgecolor": SURFACE,
        "markeredgewidth": 0.7,
    }


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
