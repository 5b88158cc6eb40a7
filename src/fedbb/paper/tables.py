"""The paper's tables as grids, at its own scale or a smaller one, and the numbers it prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from fedbb._util.names import nearest
from fedbb.errors import RecipeError
from fedbb.recipes.grid import (
    Grid,
    GridSpec,
    PrintedNumbers,
    check_place,
    labels_of,
    read_grid,
    read_spec,
)

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
    labels = labels_of(read_spec(_path(table), GridSpec))
    path = _folder() / "numbers" / f"{table}.toml"
    if not path.exists():
        return []
    numbers = read_spec(path, PrintedNumbers).number
    for number in numbers:
        try:
            check_place(number.at, labels)
        except RecipeError as error:
            raise RecipeError(f"{path}: {error}") from error
    return [Printed(**dict(number)) for number in numbers]


def _path(table: str) -> Path:
    if table not in paper_tables():
        known = nearest(table, paper_tables())
        if Path(table).suffix in (".toml", ".json"):
            known += "; a recipe of your own is for `fedbb run`, a grid for `fedbb sweep`"
        raise RecipeError(f"table {table!r} is unknown{known}")
    return _folder() / f"{table}.toml"


def _folder() -> Path:
    return Path(str(resources.files("fedbb.paper") / "data"))


@dataclass(frozen=True)
class PrintedCost:
    """A row of the paper's efficiency table, in millions, and what to know about it."""

    parameters: float
    macs: float
    note: str = ""


PAPER_MODEL, PAPER_CLASSES, PAPER_IMAGE = "resnet56", 100, (3, 32, 32)
PAPER_TABLE = {
    "fedavg": PrintedCost(0.61, 87.3),
    "fedprox": PrintedCost(1.21, 87.3),
    "moon": PrintedCost(2.21, 262.2),
    "fednova": PrintedCost(
        0.61, 95.24, "no count of ours gives 95.24; a client trains as FedAvg's"
    ),
    "fedalign": PrintedCost(0.61, 89.1, "without the matrices of the power iteration"),
    "fedlc": PrintedCost(0.61, 87.3),
    "fedbb": PrintedCost(0.61, 87.3),
}
