"""The style that all figures share, and how a figure becomes PNG or SVG."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from fedbb._util.files import replacing

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
