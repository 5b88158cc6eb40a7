"""Many recipes from one file: axes of settings, crossed with each other and with seeds.

A grid file and its overlays are laid over each other in this order, the later over the earlier:

1. `[recipe]` of the grid, then of each overlay, merged table by table;
2. for each axis in the grid's order, the `set` of the cell's value there, then what overlays `set`
   for that value; a `set` puts whole values in by dotted name, so `"data.options" = {}` empties;
3. the top-level `set` of each overlay, then settings of the command line.

Overlays may also give `title`, `caption`, `note`, more `[[skip]]`, `seeds` that replace those
before, and `equal_cells = true` where they make two cells the same run. A grid whose own file says
`seeds = []` has no cells, whatever overlays say: a table whose numbers come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from fedbb._util.names import nearest
from fedbb.errors import FedbbError, RecipeError
from fedbb.recipes.cell_name import cell_name
from fedbb.recipes.check import check_recipe
from fedbb.recipes.grid.check import check_grid, check_overlay, check_seeds
from fedbb.recipes.grid.file import GridSpec, OverlaySpec, read_spec
from fedbb.recipes.grid.layers import Combination, Layers
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import Recipe


@dataclass(frozen=True)
class Cell:
    """One run of a grid; `name` is its folder's, `at` its label on each axis."""

    name: str
    at: Mapping[str, str]
    seed: int
    recipe: Recipe

    @property
    def title(self) -> str:
        """The labels and the seed in words."""
        return " · ".join([*self.at.values(), f"seed {self.seed}"])


@dataclass(frozen=True)
class Grid:
    """A table's worth of runs.

    `axes` gives the labels of each axis in order; `rows` is one of them, `columns` are the others.
    `skipped` tells why a combination, one label for every axis, has no cells.
    """

    title: str
    caption: str
    source: str | None
    rows: str
    columns: tuple[str, ...]
    metrics: tuple[str, ...]
    chosen: Literal["best", "final"]
    notes: tuple[str, ...]
    axes: Mapping[str, tuple[str, ...]]
    cells: tuple[Cell, ...]
    skipped: Mapping[Combination, str]


def read_grid(
    path: Path,
    overlays: Sequence[Path] = (),
    *,
    seeds: Sequence[int] | None = None,
    settings: Sequence[str] = (),
) -> Grid:
    """Return the grid of a file with overlays laid over it, every cell of it checked.

    `seeds` replace those of the files; `settings` such as "local.lr=0.02" go into every cell.
    """
    layers = _read_layers(path, overlays, settings)
    spec, over = layers.spec, layers.overlays
    with _where(f"grid {path}"):
        check_seeds(seeds or ())
        cells = tuple(_cells(layers, layers.seeds(seeds)))
        if not any(overlay.equal_cells for overlay in over):
            _check_equal(cells)
    return Grid(
        title=[spec.title, *(overlay.title for overlay in over if overlay.title)][-1],
        caption=[spec.caption, *(overlay.caption for overlay in over if overlay.caption)][-1],
        source=spec.source,
        rows=spec.rows,
        columns=tuple(spec.columns),
        metrics=tuple(spec.metrics),
        chosen=spec.chosen,
        notes=tuple(overlay.note for overlay in over if overlay.note),
        axes=layers.labels(),
        cells=cells,
        skipped=layers.skipped(),
    )


def _read_layers(path: Path, overlays: Sequence[Path], settings: Sequence[str]) -> Layers:
    spec = read_spec(path, GridSpec)
    with _where(f"grid {path}"):
        check_grid(spec)
    over = []
    for place in overlays:
        overlay = read_spec(place, OverlaySpec)
        with _where(f"overlay {place}"):
            check_overlay(overlay, spec)
        over.append(overlay)
    return Layers(spec, over, settings)


def _cells(layers: Layers, seeds: Sequence[int]) -> Iterator[Cell]:
    skipped = layers.skipped()
    for at in layers.combinations():
        if frozenset(at.items()) in skipped:
            continue
        for seed in seeds:
            with _where("cell " + ", ".join(f"{axis} = {label}" for axis, label in at.items())):
                yield _cell(layers, at, seed)


def _cell(layers: Layers, at: Mapping[str, str], seed: int) -> Cell:
    values = layers.values(at, seed)
    name = cell_name(at, values)
    recipe = make_recipe({**values, "name": name})
    check_recipe(recipe)
    return Cell(name, at, seed, recipe)


def _check_equal(cells: Sequence[Cell]) -> None:
    seen: dict[str, Cell] = {}
    for cell in cells:
        content = cell.recipe.model_dump_json(exclude={"name"})
        if content in seen:
            raise RecipeError(
                f"cells {seen[content].title} and {cell.title} are the same run; "
                "let the axes set something that differs"
            )
        seen[content] = cell


@contextmanager
def _where(place: str) -> Iterator[None]:
    """Say in the message of an error where it is."""
    try:
        yield
    except FedbbError as error:
        raise RecipeError(f"{place}: {error}") from error


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
