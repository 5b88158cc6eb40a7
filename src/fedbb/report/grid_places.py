"""The places of a grid's table, each with the runs of all its seeds, and its rivals."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedbb.recipes.grid.grid import Grid
from fedbb.recipes.spec import Recipe
from fedbb.report.grid_runs import CellRun, State
from fedbb.report.groups import settings_of
from fedbb.report.tables import BASE, CONTROL


@dataclass(frozen=True, eq=False)
class Place:
    """Where a row meets a column: a label on every axis, and a run for each seed."""

    row: str
    column: tuple[str, ...]
    at: Mapping[str, str]
    found: tuple[CellRun, ...]

    @property
    def finished(self) -> tuple[CellRun, ...]:
        """The runs that are whole."""
        return tuple(found for found in self.found if found.state is State.FINISHED)

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of the first seed; None where the grid has no cell."""
        return self.found[0].cell.recipe if self.found else None

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """All settings of its recipe but method and seed; none where the grid has no cell."""
        return {} if self.recipe is None else settings_of(self.recipe)


def column_axes(grid: Grid) -> tuple[str, ...]:
    """Return the axes that make columns: those the grid names, then any it leaves over."""
    others = (axis for axis in grid.axes if axis != grid.rows and axis not in grid.columns)
    return (*grid.columns, *others)


def places_of(grid: Grid, runs: Sequence[CellRun]) -> list[Place]:
    """Return the places column by column of each row, also those without any cell."""
    axes = column_axes(grid)
    columns = list(itertools.product(*(grid.axes[axis] for axis in axes)))
    by_labels: dict[frozenset[tuple[str, str]], list[CellRun]] = {}
    for found in runs:
        by_labels.setdefault(frozenset(found.cell.at.items()), []).append(found)
    places = []
    for row, column in itertools.product(grid.axes[grid.rows], columns):
        at = {grid.rows: row, **dict(zip(axes, column, strict=True))}
        seeds = by_labels.get(frozenset(at.items()), [])
        ordered = sorted(seeds, key=lambda found: found.cell.seed)
        places.append(Place(row, column, at, tuple(ordered)))
    return places


def rivals_of(place: Place, places: Sequence[Place]) -> list[tuple[str, Place]]:
    """Return FedAvg and the control where they differ from a place in nothing but the method.

    Of several, as in a grid of hyper-parameters, the one with most options and labels in common.
    """
    if place.recipe is None:
        return []
    own = place.recipe.method.name
    wanted = {BASE: (), CONTROL: (BASE,)}.get(own, (BASE, CONTROL))
    found = []
    for name in wanted:
        alike = [other for other in places if _is_alike(other, place, name)]
        if alike:
            found.append((name, max(alike, key=lambda other: _kinship(place, other))))
    return found


def _is_alike(other: Place, place: Place, method: str) -> bool:
    if other.recipe is None or other.recipe.method.name != method:
        return False
    return other.settings == place.settings


def _kinship(place: Place, other: Place) -> tuple[int, int]:
    assert place.recipe is not None
    assert other.recipe is not None
    options = _shared(place.recipe.method.options, other.recipe.method.options)
    return options, _shared(place.at, other.at)


def _shared(first: Mapping[str, Any], second: Mapping[str, Any]) -> int:
    return sum(key in second and second[key] == value for key, value in first.items())
