"""`fedbb paper`: the paper's tables, run, followed, written and drawn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from fedbb._util.table import Table, make_table, to_rich
from fedbb.cli.common import Json, Quiet, echo, print_json, say
from fedbb.cli.grids import (
    DryRun,
    GridFolder,
    Only,
    Seeds,
    SweepOptions,
    Workers,
    cells_table,
    headline,
    parse_seeds,
    run_sweep,
)
from fedbb.cli.grids import as_json as cells_as_json
from fedbb.errors import RunError
from fedbb.paper.tables import SCALES, paper_grid, paper_tables, printed
from fedbb.runs.sweep import State, failures, statuses


class TablesByName(TyperGroup):
    """Takes a first word that is not a verb for a table to run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `run` before anything that is neither a verb nor a call for help."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=TablesByName,
    help="The paper's tables: `fedbb paper TABLE --scale …` runs one.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="TABLE", help="As `fedbb paper list` names it.")]
Scale = Annotated[
    str, typer.Option("--scale", help=f"{', '.join(SCALES)}; full is the paper's own setting.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder for all; paper/<table>/<scale> if not given."),
]
SCALE = "reduced"
CAPTION = 600
"""Most letters of a caption in the list of tables."""


@app.command("run")
def run(
    table: Name,
    scale: Scale = SCALE,
    out: Out = None,
    seeds: Seeds = None,
    only: Only = None,
    workers: Workers = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the missing cells of a table and write it; the word `run` may be omitted.

    It shows the cost first. If it is stopped and started again, it continues where it was.
    """
    folder = _folder(table, scale, out, seeds)
    run_sweep(folder, SweepOptions(only or (), workers, dry_run, as_json, quiet))


@app.command("list")
def list_tables(as_json: Json = False, quiet: Quiet = False) -> None:
    """List the tables, and how many cells each has at every scale."""
    rows = [_row(table) for table in paper_tables()]
    if as_json:
        print_json(rows)
    elif not quiet:
        Console().print(to_rich(_overview(rows), length=CAPTION))


@app.command("status")
def status(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]", help="All tables if not given; --out then holds one folder for each."
        ),
    ] = None,
    scale: Scale = SCALE,
    out: Out = None,
    seeds: Seeds = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what is finished, unfinished, failed and waiting."""
    console = Console(quiet=quiet)
    if table is None:
        top = out or Path("paper")
        folders = {name: _folder(name, scale, top / name / scale, seeds) for name in paper_tables()}
        rows = {name: _counts(folder) for name, folder in folders.items()}
        print_json(rows) if as_json else console.print(to_rich(_progress(rows, scale)))
        return
    folder = _folder(table, scale, out, seeds)
    found = statuses(folder.grid, folder.runs)
    if as_json:
        print_json(cells_as_json(folder.grid, found))
        return
    console.print(to_rich(cells_table(folder.grid, found)))
    lines = [f"failed {title}: {why}" for title, why in failures(folder.grid, found).items()]
    for line in (headline(found), *lines):
        say(console, line)


@app.command("table")
def table(
    table: Name,
    scale: Scale = SCALE,
    out: Out = None,
    seeds: Seeds = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a table of the existing runs, and show it."""
    from fedbb.report.sweep.table_files import read_table, show_table, write_tables

    folder = _folder(table, scale, out, seeds)
    written = write_tables(folder.grid, folder.printed, folder.runs, folder.out)
    if not as_json and not quiet:
        Console().print(show_table(read_table(folder.grid, folder.printed, folder.runs)))
    _tell(written, as_json, quiet)


@app.command("plot")
def plot(
    table: Name,
    scale: Scale = SCALE,
    out: Out = None,
    seeds: Seeds = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw the figures of a table from the existing runs."""
    from fedbb.report.sweep.figures import draw_figures

    folder = _folder(table, scale, out, seeds)
    drawn = draw_figures(folder.grid, folder.runs, folder.out / "figures")
    if not drawn:
        raise RunError(
            f"there is nothing to draw: {folder.runs} holds no finished run. Run "
            f"the table (fedbb paper {table} --scale {scale}), or give the --scale that was run"
        )
    _tell(drawn, as_json, quiet)


def _folder(table: str, scale: str, out: Path | None, seeds: str | None) -> GridFolder:
    grid = paper_grid(table, scale, parse_seeds(seeds))
    return GridFolder(grid, out or Path("paper") / table / scale, printed(table))


def _tell(written: list[Path], as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json([str(path) for path in written])
    elif not quiet:
        for path in written:
            echo(path)


def _row(table: str) -> dict[str, Any]:
    grids = {scale: paper_grid(table, scale) for scale in SCALES}
    full = grids["full"]
    cells = {scale: len(grid.cells) for scale, grid in grids.items()}
    about = {"title": full.title, "source": full.source, "caption": full.caption}
    return {"table": table, **about, "cells": cells}


def _overview(rows: list[dict[str, Any]]) -> Table:
    lines = [
        (
            row["table"],
            row["source"] or "",
            row["caption"] or row["title"],
            *(row["cells"][scale] for scale in SCALES),
        )
        for row in rows
    ]
    head = ("table", "in the paper", "what it shows", *SCALES)
    return make_table(head, lines, "The paper's tables", words=3)


def _counts(folder: GridFolder) -> dict[str, int]:
    counted = Counter(status.state for status in statuses(folder.grid, folder.runs).values())
    return {str(state): counted[state] for state in State}


def _progress(rows: dict[str, dict[str, int]], scale: str) -> Table:
    lines = [
        (name, *(counts[str(state)] or "" for state in State)) for name, counts in rows.items()
    ]
    return make_table(("table", *map(str, State)), lines, f"Cells at scale {scale}")
