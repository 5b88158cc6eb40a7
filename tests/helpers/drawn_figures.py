"""Comparisons to draw, and what must hold of every drawing."""

from __future__ import annotations

import warnings
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedbb.report.groups import Comparison, group
from fedbb.report.results import read_runs
from helpers.run_builder import Sketch, build_all

HOSTILE = (
    "<script>alert('x')</script>",
    '"a" & $\\frac{$',
    "日本語 の 名前",
    "two\nlines\t\x07",
)
LONG = tuple(f"a class with the long name number {number}" for number in range(14))
MANY = tuple(f"class {number}" for number in range(40))
SHAPES = {
    "plain": {},
    "one of all": {"seeds": 1, "rounds": 1, "clients": 1, "classes": ("only",)},
    "hostile names": {"classes": HOSTILE},
    "long names": {"classes": LONG, "data": "a data set with quite a long name of its own"},
    "many of all": {"classes": MANY, "clients": 30, "seeds": 1},
    "all undefined": {"undefined": tuple(range(10))},
}


def compared(root: Path, seeds: int = 3, **shape: object) -> Comparison:
    """Return a comparison of the three methods of the demo over made-up runs."""
    methods = ("fedavg", "fedavg-scaled", "fedbb")
    sketches = [Sketch(method, seed, **shape) for method in methods for seed in range(seeds)]
    (found,) = group(read_runs(build_all(root, sketches)))
    return found


def texts(figure: Figure) -> list[str]:
    """Return all words in a figure."""
    found = [text.get_text() for text in figure.findobj(Text) if text.get_visible()]
    return [text for text in found if text]


def overhang(figure: Figure) -> float:
    """Return by how many inches anything drawn reaches over the edge of the figure."""
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        canvas.draw()
        drawn = figure.get_tightbbox(canvas.get_renderer())
    width, height = figure.get_size_inches()
    return max(-drawn.x0, -drawn.y0, drawn.x1 - width, drawn.y1 - height)
