"""The figures of one comparison: drawn, saved as PNG, and given to the page with captions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from fedbb.report.groups import Comparison
from fedbb.report.page import Picture
from fedbb.report.plots.canvas import save_png, to_svg
from fedbb.report.plots.classes import plot_classes
from fedbb.report.plots.curves import plot_curves
from fedbb.report.plots.partition import plot_partition
from fedbb.report.plots.weights import balanced_part, plot_weights
from fedbb.report.wording import capitalize, metric_title


def draw(comparison: Comparison, folder: Path, stem: str) -> list[Picture]:
    """Save the figures as `stem-name.png` in the folder, and return them for the page."""
    pictures = []
    for name, figure, caption in _figures(comparison):
        save_png(figure, folder / f"{stem}-{name}.png")
        pictures.append(Picture(to_svg(figure, f"figure-{stem}-{name}"), caption))
    return pictures


def _figures(comparison: Comparison) -> Iterator[tuple[str, Figure, str]]:
    metric, class_metric = comparison.metric, comparison.class_metric
    yield (
        "curves",
        plot_curves(comparison, metric),
        f"{capitalize(metric_title(metric))} after each round. Lines are means over seeds, "
        "bands one standard deviation to either side.",
    )
    yield (
        "classes",
        plot_classes(comparison, class_metric),
        f"{capitalize(metric_title(class_metric))} class by class, from the most frequent to the "
        "rarest. Thin lines are one standard deviation to either side.",
    )
    if not comparison.federation.hidden:
        yield (
            "partition",
            plot_partition(comparison),
            "How many training cases of each class each client holds.",
        )
    part = balanced_part(comparison)
    if part is not None:
        yield (
            "weights",
            plot_weights(comparison, part),
            f"A client's weight in the merged model by its size alone, and by {part.label}, which "
            "raises clients whose labels are even. Sorted from even to uneven.",
        )
