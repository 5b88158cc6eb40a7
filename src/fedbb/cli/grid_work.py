"""From a grid to its runs and tables, as `fedbb sweep` and `fedbb paper` do it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fedbb.cli.grid_screen import open_grid_screen
from fedbb.cli.grid_view import as_json, cells_table, failures, headline
from fedbb.cli.options import print_json
from fedbb.cli.stopping import stoppable
from fedbb.errors import RecipeError
from fedbb.paper.tables import Printed
from fedbb.recipes.grid.grid import Grid
from fedbb.recipes.grid.select import select
from fedbb.runs.cost_estimate import Estimate, Forecast, estimate
from fedbb.runs.scheduler import prepare
from fedbb.runs.sweep import run_grid, statuses
from fedbb.simulation.pool.cores import usable_cores

RUNS = "runs"
"""The folder within a grid's own that its cells' folders are in."""


@dataclass(frozen=True)
class Manner:
    """How a grid is run and told of."""

    only: Sequence[str] = ()
    workers: int | None = None
    dry_run: bool = False
    json: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Piece:
    """A grid, the numbers printed for it if it is the paper's, and the folder for all it gives."""

    grid: Grid
    out: Path
    printed: Sequence[Printed] = ()

    @property
    def runs(self) -> Path:
        """The folder that the cells' folders are in."""
        return self.out / RUNS


def work_on(piece: Piece, manner: Manner) -> None:
    """Tell what a grid will cost, run what is missing, and write its tables.

    Exits with 1 if cells failed, with 130 if it was stopped.
    """
    if not piece.grid.cells:
        raise RecipeError(f"{piece.grid.title!r} has no cells to run")
    chosen = select(piece.grid, manner.only)
    console = Console(quiet=manner.quiet or manner.json)
    try:
        with stoppable():
            plan = _plan(chosen, piece, manner, console)
            if not manner.dry_run:
                _run(chosen, piece, manner, plan, console)
    except KeyboardInterrupt:
        kept = f"every finished round is kept in {piece.runs}"
        typer.echo(f"stopped; {kept}, and the same command goes on", err=True)
        raise typer.Exit(130) from None
    if not manner.dry_run:
        _end(chosen, piece, manner, console)


def parse_seeds(text: str | None) -> list[int] | None:
    """Return the seeds of a list such as "0,1,2"."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RecipeError(f"--seeds {text!r} must be whole numbers, as in 0,1,2") from None


def _plan(chosen: Grid, piece: Piece, manner: Manner, console: Console) -> Estimate:
    """List the cells and say what those that are missing will cost."""
    if not manner.dry_run:
        prepare()
    plan = _measure(chosen, piece.runs, console)
    found, workers = statuses(chosen, piece.runs), _workers(chosen, manner)
    console.print(cells_table(chosen, found, plan))
    _say(console, headline(found, plan, workers))
    for why in dict.fromkeys(plan.unknown.values()):
        _say(console, f"cost unknown: {why}")
    for note in chosen.notes:
        _say(console, f"note: {note}")
    if manner.json and (manner.dry_run or not manner.quiet):
        cells = as_json(chosen, found, plan)
        seconds = plan.wall(workers)
        plain = {"event": "plan", "workers": workers, "seconds": seconds, "cells": cells}
        print_json(plain, indent=None)
    return plan


def _measure(chosen: Grid, runs: Path, console: Console) -> Estimate:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as progress:
        bar = progress.add_task("measuring what cells cost here", total=None)
        return estimate(
            chosen, runs, lambda done, whole: progress.update(bar, completed=done, total=whole)
        )


def _run(chosen: Grid, piece: Piece, manner: Manner, plan: Estimate, console: Console) -> None:
    workers = _workers(chosen, manner)
    forecast = Forecast(chosen, plan, workers)
    news = closing(run_grid(chosen, piece.runs, workers, seconds=plan.seconds))
    screen = open_grid_screen(console, forecast, as_json=manner.json, quiet=manner.quiet)
    with news as events, screen as shown:
        for cell, event in events:
            forecast.hear(cell, event)
            shown.hear(cell, event)


def _end(chosen: Grid, piece: Piece, manner: Manner, console: Console) -> None:
    from fedbb.report.grid_table import write_tables

    found = statuses(chosen, piece.runs)
    failed = failures(chosen, found)
    written = write_tables(piece.grid, piece.printed, piece.runs, piece.out)
    _say(console, headline(found))
    for title, why in failed.items():
        typer.echo(f"failed {title}: {why}", err=True)
    _say(console, f"table: {written[0]}")
    if manner.json:
        tables = [str(path) for path in written]
        cells = as_json(chosen, found)
        print_json({"event": "end", "cells": cells, "tables": tables}, indent=None)
    if failed:
        raise typer.Exit(1)


def _workers(chosen: Grid, manner: Manner) -> int:
    return min(manner.workers or usable_cores(), max(1, len(chosen.cells)))


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
