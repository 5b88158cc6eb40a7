"""Grids with made-up runs, one folder for each cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbb.recipes.grid import Cell, Grid, read_grid
from helpers.run_builder import Sketch, build

LEVELS = {
    "fedavg": 0.62,
    "fedavg-scaled": 0.66,
    "fedbb": 0.74,
    "fedprox": 0.63,
    "moon": 0.65,
    "fednova": 0.6,
    "fedalign": 0.64,
    "fedlc": 0.69,
}
METHODS = ("fedavg", "fedavg-scaled", "fedbb")


def quote(text: str) -> str:
    """Return text as a TOML string."""
    signs = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\x07": "\\u0007"}
    return '"' + "".join(signs.get(sign, sign) for sign in text) + '"'


def write_grid(path: Path, rows: Mapping[str, str], columns: Sequence[str], **top: str) -> Path:
    """Write a grid of methods by label (label → method) against label skew, 0.1, 0.2, …"""
    settings = {
        "title": quote("A table"),
        "caption": quote("What it shows."),
        "seeds": "[0, 1, 2]",
        "metrics": '["balanced_accuracy"]',
        "chosen": '"best"',
    }
    lines = [f"{key} = {value}" for key, value in (settings | top).items()]
    lines += ['rows = "method"', 'columns = ["skew"]', "[recipe.data]", 'name = "digits"']
    lines += ['partition = { kind = "label-skew", clients = 6, concentration = 0.5 }']
    lines += ["[recipe.rounds]", "number = 6", "[[axis]]", 'name = "method"']
    for label, method in rows.items():
        lines += ["[[axis.value]]", f"label = {quote(label)}"]
        lines += [f'set = {{ "method.name" = "{method}" }}']
    lines += ["[[axis]]", 'name = "skew"']
    for number, label in enumerate(columns, start=1):
        lines += ["[[axis.value]]", f"label = {quote(label)}"]
        lines += [f'set = {{ "data.partition.concentration" = {number / 10} }}']
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def small_grid(
    folder: Path,
    rows: Mapping[str, str] | None = None,
    columns: Sequence[str] = ("δ = 0.1", "δ = 0.2"),
    **top: str,
) -> Grid:
    """Return a grid of the demo's methods, or of others, against two label skews."""
    named = rows or {"FedAvg": "fedavg", "Control": "fedavg-scaled", "FedBB": "fedbb"}
    return read_grid(write_grid(folder / "grid.toml", named, columns, **top))


def run_cells(
    grid: Grid,
    runs: Path,
    wanted: Callable[[Cell], bool] = lambda cell: True,
    **shape: Any,
) -> Path:
    """Write a made-up run for every wanted cell, and return the folder of them all."""
    for cell in grid.cells:
        if wanted(cell):
            build(runs / cell.name, sketch_of(cell, **shape))
    return runs


def sketch_of(cell: Cell, **shape: Any) -> Sketch:
    """Return the made-up run that fits a cell."""
    method = cell.recipe.method.name
    level = None if method in METHODS else LEVELS[method]
    recipe = cell.recipe.model_dump(mode="json")
    known = {"rounds": cell.recipe.rounds.number, "level": level, "recipe": recipe}
    return Sketch(method, cell.seed, **(known | shape))
