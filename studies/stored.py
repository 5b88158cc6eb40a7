"""Stored results of a grid's finished cells, read back from docs/results."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbb.recipes.grid import Grid, read_grid

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
GRIDS = Path(__file__).parent

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class StoredGrid:
    """A grid, the rows of its finished cells and of their classes, and how they were made.

    `diverged` are the cells whose loss became NaN or infinite.
    """

    name: str
    grid: Grid
    cells: list[Row]
    classes: list[Row]
    diverged: list[Row]
    about: dict[str, Any]

    def scores(self, measure: str, at: Mapping[str, str]) -> dict[int, float]:
        """Return a column of the finished cells at these labels, by seed."""
        return {
            int(row["seed"]): float(row[measure])
            for row in self.cells
            if _is_at(row, at) and row.get(measure)
        }

    def count_diverged(self, at: Mapping[str, str]) -> int:
        """Return how many cells at these labels diverged."""
        return sum(_is_at(row, at) for row in self.diverged)

    def places(self) -> list[dict[str, str]]:
        """Return the labels of each column of the table; one without labels if there is none."""
        places: list[dict[str, str]] = [{}]
        for axis in self.grid.columns:
            places = [{**at, axis: label} for at in places for label in self.grid.axes[axis]]
        return places


def read_stored(name: str, results: Path = RESULTS, grids: Path = GRIDS) -> StoredGrid | None:
    """Return the stored results of a grid, None if there are none."""
    folder = results / name
    if not (folder / "about.json").exists():
        return None
    about = json.loads((folder / "about.json").read_text("utf-8"))
    grid = read_grid(grids / f"{name}.toml")
    cells, classes, diverged = (
        read_rows(folder / f"{table}.csv") for table in ("cells", "classes", "diverged")
    )
    return StoredGrid(name, grid, cells, classes, diverged, about)


def _is_at(row: Row, at: Mapping[str, str]) -> bool:
    return all(row[axis] == label for axis, label in at.items())


def read_rows(path: Path) -> list[Row]:
    """Return the lines of a CSV file, none if it is not there."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
