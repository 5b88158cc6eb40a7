"""The figures of a grid as PNG and SVG, one set for runs that differ only in their method."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fedbb.errors import RunError
from fedbb.recipes.grid import Grid, plain
from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.plots.canvas import save_png, save_svg
from fedbb.report.plots.figures import (
    balanced_part,
    base_part,
    plot_costs,
    plot_curves,
    plot_gains,
    plot_partition,
    plot_shares,
    plot_weights,
    weighed_part,
)
from fedbb.report.sweep.score_table import CellRun, Place, finished_run, places_of, read_cells

Named = tuple[str, Figure]


def draw_figures(grid: Grid, runs_folder: Path, out: Path) -> list[Path]:
    """Write every figure that the finished runs allow, and return the paths, PNG before SVG.

    There is a set for each comparison, that is, for all runs that differ only in their method.
    """
    panels = panels_of(grid, read_cells(grid, runs_folder))
    if not panels:
        return []
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


def panels_of(grid: Grid, runs: Sequence[CellRun]) -> list[Comparison]:
    """Return a comparison for all places that differ in nothing but the method.

    Labels that such places share make its title, those that differ name its methods.
    """
    places = [place for place in places_of(grid, runs) if place.found]
    inner = _method_axes(places, list(grid.axes))
    parts: dict[tuple[str, ...], list[Place]] = {}
    for place in places:
        shared = tuple(label for axis, label in place.at.items() if axis not in inner)
        key = (*shared, json.dumps(place.settings, sort_keys=True, default=str))
        parts.setdefault(key, []).append(place)
    found = [_comparison(grid, members, inner) for members in parts.values()]
    return [comparison for comparison in found if comparison is not None]


def merged(grid: Grid, panels: Sequence[Comparison]) -> Comparison | None:
    """Return panels of one member each as a single comparison, named by their titles.

    So a grid over data, whose runs share no settings, still has its curves in one figure.
    """
    if len(panels) < 2 or any(len(panel.methods) > 1 for panel in panels):
        return None
    members = [MethodRuns(p.methods[0].method, p.title, p.methods[0].runs) for p in panels]
    return Comparison(grid.title, tuple(members))


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
        yield "gains", plot_gains(panel, base, panel.class_metric)
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


def _method_axes(places: Sequence[Place], axes: Sequence[str]) -> set[str]:
    """Return the axes along which somewhere the method changes and all else stays."""
    found = set()
    for axis in axes:
        by_others: dict[frozenset[tuple[str, str]], list[Place]] = {}
        for place in places:
            rest = frozenset(item for item in place.at.items() if item[0] != axis)
            by_others.setdefault(rest, []).append(place)
        pairs = (pair for line in by_others.values() for pair in itertools.combinations(line, 2))
        if any(_differ_by_method(*pair) for pair in pairs):
            found.add(axis)
    return found


def _differ_by_method(first: Place, second: Place) -> bool:
    assert first.recipe is not None
    assert second.recipe is not None
    return first.settings == second.settings and first.recipe.method != second.recipe.method


def _comparison(grid: Grid, members: Sequence[Place], inner: set[str]) -> Comparison | None:
    methods = [_method(place, inner) for place in members if place.finished]
    if not methods:
        return None
    classes = methods[0].runs[0].federation.classes
    # Data that changed behind a recipe cannot be drawn class by class.
    alike = [part for part in methods if all(r.federation.classes == classes for r in part.runs)]
    shared = [label for axis, label in members[0].at.items() if axis not in inner]
    return Comparison(", ".join(shared) or grid.title, tuple(alike)) if alike else None


def _method(place: Place, inner: set[str]) -> MethodRuns:
    assert place.recipe is not None
    label = ", ".join(label for axis, label in place.at.items() if axis in inner)
    runs = tuple(finished_run(found) for found in place.finished)
    name = place.recipe.method.name
    return MethodRuns(name, label or place.row, runs)
