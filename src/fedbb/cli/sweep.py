"""`fedbb sweep`: many runs from one grid file, resumable at any moment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbb.cli.common import AllowCode, Json, Quiet
from fedbb.cli.grids import (
    DryRun,
    GridFolder,
    Only,
    Seeds,
    SweepOptions,
    Workers,
    parse_seeds,
    run_sweep,
)
from fedbb.recipes.grid import read_grid

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of every cell."),
]


def sweep(
    grid: Annotated[Path, typer.Argument(help="Grid file (.toml).")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for all; sweeps/<grid> if not given.")
    ] = None,
    overlay: Annotated[
        list[Path] | None, typer.Option("--overlay", help="File that overrides parts of the grid.")
    ] = None,
    settings: Settings = None,
    seeds: Seeds = None,
    only: Only = None,
    workers: Workers = None,
    dry_run: DryRun = False,
    allow_code: AllowCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run all cells of a grid side by side, and write their table.

    It shows the cost first. If it is stopped and started again, it continues where it was. A
    finished cell never runs again, and a failed one does not stop the others (exit 1 at the end).
    """
    read = read_grid(grid, overlay or [], seeds=parse_seeds(seeds), settings=settings or [])
    options = SweepOptions(only or (), workers, dry_run, as_json, quiet, allow_code)
    run_sweep(GridFolder(read, out or Path("sweeps") / grid.stem), options)
