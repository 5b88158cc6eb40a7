"""The figures of a grid, from the same runs as its table, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from fedbb.errors import RunError
from fedbb.recipes.cell_name import plain
from fedbb.recipes.grid.grid import Grid
from fedbb.report.grid_panels import merged, panels_of
from fedbb.report.grid_runs import read_cells
from fedbb.report.groups import Comparison
from fedbb.report.plots.canvas import save_png, save_svg
from fedbb.report.plots.costs import plot_costs
from fedbb.report.plots.curves import plot_curves
from fedbb.report.plots.gains import base_part, plot_gains
from fedbb.report.plots.partition import plot_partition
from fedbb.report.plots.shares import plot_shares, weighed_part
from fedbb.report.plots.weights import balanced_part, plot_weights
from fedbb.report.wording import CLASS_METRIC

Named = tuple[str, Figure]


def draw_figures(grid: Grid, runs_folder: Path, out: Path) -> list[Path]:
    """Write every figure that the finished runs allow, and return the paths, PNG before SVG.

    There is a set for each comparison, that is, for all runs that differ only in their method.
    """
    panels = panels_of(grid, read_cells(grid, runs_folder))
    together = merged(grid, panels)
    paths = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        if together is not None:
            paths += _save(_scores_of(together, grid), out, f"all-{plain(grid.title)}")
        for number, panel in enumerate(panels, start=1):
            stem = f"{number}-{plain(panel.title)}".rstrip("-")
            paths += _save(_figures_of(panel, grid, scores=together is None), out, stem)
    except OSError as error:
        raise RunError(f"the figures cannot be written to {out}: {error}") from error
    return paths


def _save(figures: Iterator[Named], out: Path, stem: str) -> list[Path]:
    paths = []
    for name, figure in figures:
        picture, drawing = out / f"{stem}-{name}.png", out / f"{stem}-{name}.svg"
        save_png(figure, picture)
        save_svg(figure, drawing)
        paths += [picture, drawing]
    return paths


def _figures_of(panel: Comparison, grid: Grid, *, scores: bool) -> Iterator[Named]:
    if scores:
        yield from _scores_of(panel, grid)
    base = base_part(panel)
    if base is not None:
        yield "gains", plot_gains(panel, base, CLASS_METRIC[panel.federation.task])
    weighed = weighed_part(panel)
    if weighed is not None:
        yield "shares", plot_shares(panel, *weighed)
    balanced = balanced_part(panel)
    if balanced is not None:
        yield "weights", plot_weights(panel, balanced)
    if not panel.federation.hidden:
        yield "partition", plot_partition(panel)


def _scores_of(panel: Comparison, grid: Grid) -> Iterator[Named]:
    metric = panel.metric if panel.metric in grid.metrics else grid.metrics[0]
    yield "curves", plot_curves(panel, metric)
    yield "costs", plot_costs(panel, metric)
