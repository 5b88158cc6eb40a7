"""The paper's tables as grids, at its own scale or a smaller one, and the numbers it prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from fedbb._util.names import nearest
from fedbb.errors import RecipeError
from fedbb.recipes.grid.check import check_place
from fedbb.recipes.grid.file import GridSheet, NumbersSheet, read_sheet
from fedbb.recipes.grid.grid import Grid, read_grid
from fedbb.recipes.grid.layers import labels_of

SCALES = ("full", "reduced", "smoke")


@dataclass(frozen=True)
class Printed:
    """A number as printed, in percent; `spread` is None where none is printed."""

    at: Mapping[str, str]
    metric: str
    mean: float
    spread: float | None = None
    note: str | None = None


def paper_tables() -> list[str]:
    """Return the names of the paper's tables."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def paper_grid(
    table: str, scale: str, seeds: Sequence[int] | None = None, settings: Sequence[str] = ()
) -> Grid:
    """Return the grid of a table at a scale, laid over the paper's own where it is smaller."""
    path = _path(table)
    if scale not in SCALES:
        raise RecipeError(f"scale {scale!r} is unknown{nearest(scale, SCALES)}")
    places = [_folder() / "scales" / scale / f"{name}.toml" for name in ("all", table)]
    overlays = [place for place in places if place.exists()]
    if scale != "full" and not overlays:
        raise RecipeError(f"table {table} has no scale {scale}")
    return read_grid(path, overlays, seeds=seeds, settings=settings)


def printed(table: str) -> list[Printed]:
    """Return the numbers that the paper prints in a table, as its file gives them."""
    labels = labels_of(read_sheet(_path(table), GridSheet))
    path = _folder() / "numbers" / f"{table}.toml"
    if not path.exists():
        return []
    numbers = read_sheet(path, NumbersSheet).number
    for number in numbers:
        try:
            check_place(number.at, labels)
        except RecipeError as error:
            raise RecipeError(f"{path}: {error}") from error
    return [Printed(**dict(number)) for number in numbers]


def _path(table: str) -> Path:
    if table not in paper_tables():
        raise RecipeError(f"table {table!r} is unknown{nearest(table, paper_tables())}")
    return _folder() / f"{table}.toml"


def _folder() -> Path:
    return Path(str(resources.files("fedbb.paper") / "data"))
