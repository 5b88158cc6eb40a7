"""The figure of docs/performance.md: speed relative to a bare loop, and other frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import results
from fedbb.report.plots.canvas import BLUE, INK, MUTED, SKY, themed

COLORS = {"bare": MUTED, "inline": SKY, "pool": BLUE}
LABELS = {"bare": "bare PyTorch loop", "inline": "fedbb, inline", "pool": "fedbb, pool"}
NAMES = {"small-cnn": "small CNN", "resnet11": "ResNet-11", "resnet56": "ResNet-56"}


@themed
def draw(folder: Path, path: Path) -> bool:
    """Draw what has been measured so far; tell whether that is anything."""
    parts = [
        (name, result, drawer)
        for name, drawer in (("rounds", _speeds), ("peers", _peers))
        if (result := results.read(name, folder)) is not None
    ]
    if not parts:
        return False
    figure = Figure(figsize=(7.2, 2.7 * len(parts)), layout="constrained")
    for place, (_, result, drawer) in enumerate(parts, start=1):
        drawer(figure.add_subplot(len(parts), 1, place), result)
    figure.savefig(path, metadata={"Creator": None, "Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=160, metadata={"Software": None})
    return True


def _speeds(axes: Axes, result: dict[str, Any]) -> None:
    """Draw how many times as fast as the bare loop each variant is, with least and most."""
    models = list(result["models"])
    variants = list(result["models"][models[0]]["variants"])
    height = 0.8 / len(variants)
    for number, variant in enumerate(variants):
        ratios = [result["models"][model]["variants"][variant]["ratio"] for model in models]
        middle = [1 / ratio["median"] for ratio in ratios]
        below = [1 / ratio["median"] - 1 / ratio["most"] for ratio in ratios]
        above = [1 / ratio["least"] - 1 / ratio["median"] for ratio in ratios]
        places = [row + (number - (len(variants) - 1) / 2) * height for row in range(len(models))]
        axes.barh(
            places,
            middle,
            height * 0.9,
            xerr=(below, above),
            color=COLORS[variant],
            ecolor=INK,
            error_kw={"elinewidth": 0.9},
            label=LABELS[variant],
        )
        for place, value, more in zip(places, middle, above, strict=True):
            axes.text(value + more + 0.03, place, f"{value:.2f}", va="center", size=8)
    axes.set_yticks(range(len(models)), [NAMES.get(model, model) for model in models])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("images per second, bare loop = 1; bars: median, lines: min and max")
    axes.set_title("Speed of a round", loc="left", size=10.5)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=7.5)


def _peers(axes: Axes, result: dict[str, Any]) -> None:
    """Draw the time of a later round of each framework in units of fedbb's."""
    measured = {name: peer for name, peer in result["peers"].items() if "ratio" in peer}
    values = [peer["ratio"]["later"] for peer in measured.values()]
    colors = [BLUE if name == "fedbb" else MUTED for name in measured]
    axes.barh(range(len(measured)), values, 0.7, color=colors)
    for place, value in enumerate(values):
        axes.text(value, place, f" {value:.2f}", va="center", size=8)
    axes.set_yticks(range(len(measured)), list(measured))
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("time of a later round, fedbb = 1; lower is better")
    axes.set_title("The same work in other frameworks", loc="left", size=10.5)


if __name__ == "__main__":
    draw(results.FOLDER, Path("docs/performance.svg"))
