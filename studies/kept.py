"""What is kept of a grid's finished cells, read back."""

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
class Kept:
    """A grid, the lines of its finished cells, of their classes, and what is told about them."""

    name: str
    grid: Grid
    cells: list[Row]
    classes: list[Row]
    about: dict[str, Any]

    def scores(self, measure: str, at: Mapping[str, str]) -> dict[int, float]:
        """Return a column of the finished cells at these labels, by seed."""
        return {
            int(row["seed"]): float(row[measure])
            for row in self.cells
            if all(row[axis] == label for axis, label in at.items()) and row.get(measure)
        }

    def places(self) -> list[dict[str, str]]:
        """Return the labels of each column of the table; one without labels if there is none."""
        places: list[dict[str, str]] = [{}]
        for axis in self.grid.columns:
            places = [{**at, axis: label} for at in places for label in self.grid.axes[axis]]
        return places


def read_kept(name: str, results: Path = RESULTS, grids: Path = GRIDS) -> Kept | None:
    """Return what is kept of a grid, None if nothing is."""
    folder = results / name
    if not (folder / "about.json").exists():
        return None
    about = json.loads((folder / "about.json").read_text("utf-8"))
    grid = read_grid(grids / f"{name}.toml")
    return Kept(
        name, grid, read_rows(folder / "cells.csv"), read_rows(folder / "classes.csv"), about
    )


def read_rows(path: Path) -> list[Row]:
    """Return the lines of a CSV file, none if it is not there."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
