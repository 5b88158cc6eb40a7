"""A part of a grid's cells, chosen by text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch

from fedbb._util.names import nearest
from fedbb.errors import RecipeError
from fedbb.recipes.grid.grid import Cell, Grid


def select(grid: Grid, only: Sequence[str]) -> Grid:
    """Return the grid with the cells that any of these texts chooses; without texts, all.

    A text that is a label chooses that label alone; any other, what contains it in labels, seed or
    name; with * or ?, the names of that pattern. "FedBB & seed 0" chooses what both parts choose.
    """
    if not only:
        return grid
    chosen = {cell.name for text in only for cell in _matching(grid, text)}
    return replace(grid, cells=tuple(cell for cell in grid.cells if cell.name in chosen))


def _matching(grid: Grid, text: str) -> Sequence[Cell]:
    cells: Sequence[Cell] = grid.cells
    for part in text.split("&"):
        cells = [cell for cell in cells if _chooses(part.strip().casefold(), cell, grid)]
    if not cells:
        labels = [label for known in grid.axes.values() for label in known]
        raise RecipeError(f"no cell matches {text!r}{nearest(text, labels)}")
    return cells


def _chooses(text: str, cell: Cell, grid: Grid) -> bool:
    labels = {label.casefold() for known in grid.axes.values() for label in known}
    if text in labels:
        return text in {label.casefold() for label in cell.at.values()}
    if "*" in text or "?" in text:
        return fnmatch(cell.name.casefold(), text)
    return text in f"{cell.title} {cell.name}".casefold()
