"""Running the cells of a grid, and how far they are, for `fedbb sweep` and `fedbb paper`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedbb.cli.common import format_duration, print_json, progress_bar, stoppable
from fedbb.cli.screens import open_sweep_screen
from fedbb.errors import RecipeError
from fedbb.paper.tables import Printed
from fedbb.recipes.grid.grid import Cell, Grid
from fedbb.recipes.grid.select import select
from fedbb.runs.cost_estimate import Estimate, Forecast, estimate
from fedbb.runs.scheduler import prepare
from fedbb.runs.sweep import CellStatus, State, run_grid, statuses
from fedbb.simulation.pool.process_start import usable_cores

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
    allow_code: bool = False


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
    plan = _measure(chosen, piece.runs, console, manner.allow_code)
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


def _measure(chosen: Grid, runs: Path, console: Console, allow_code: bool) -> Estimate:
    with progress_bar("measuring the cost of the cells", console=console) as progress:
        return estimate(chosen, runs, progress, allow_code=allow_code)


def _run(chosen: Grid, piece: Piece, manner: Manner, plan: Estimate, console: Console) -> None:
    workers = _workers(chosen, manner)
    forecast = Forecast(chosen, plan, workers)
    grid_events = run_grid(
        chosen, piece.runs, workers, seconds=plan.seconds, allow_code=manner.allow_code
    )
    news = closing(grid_events)
    screen = open_sweep_screen(console, forecast, as_json=manner.json, quiet=manner.quiet)
    with news as events, screen as shown:
        for cell, event in events:
            forecast.hear(cell, event)
            shown.hear(cell, event)


def _end(chosen: Grid, piece: Piece, manner: Manner, console: Console) -> None:
    from fedbb.report.sweep.table_files import write_tables

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


Statuses = Mapping[str, CellStatus]

STYLES = {
    State.WAITING: "dim",
    State.UNFINISHED: "yellow",
    State.FINISHED: "green",
    State.FAILED: "red",
}


def headline(found: Statuses, estimate: Estimate | None = None, workers: int = 1) -> str:
    """Return how many cells there are, how far they are, and what the rest will cost."""
    counted = Counter(status.state for status in found.values())
    parts = [f"{len(found)} cell{'' if len(found) == 1 else 's'}"]
    for state in (State.FINISHED, State.UNFINISHED, State.FAILED):
        if counted[state]:
            parts.append(f"{counted[state]} {state}")
    if estimate is not None and estimate.per_round:
        number = f"{workers} worker{'' if workers == 1 else 's'}"
        parts.append(f"about {format_duration(estimate.wall(workers))} on {number}")
    if estimate is not None and estimate.unknown:
        parts.append(f"{len(estimate.unknown)} of unknown cost")
    return ", ".join(parts)


def cells_table(grid: Grid, found: Statuses, estimate: Estimate | None = None) -> Group:
    """Return a title, and a row for each combination with a column for each seed."""
    table = Table()
    for axis in grid.axes:
        table.add_column(escape(axis))
    seeds = list(dict.fromkeys(cell.seed for cell in grid.cells))
    for seed in seeds:
        table.add_column(f"seed {seed}", justify="right", no_wrap=True)
    if estimate is not None:
        table.add_column("time left", justify="right", no_wrap=True)
    for cells in _combinations(grid):
        words = {cell.seed: _words(found[cell.name]) for cell in cells}
        row = [*map(escape, cells[0].at.values()), *(words.get(seed, "") for seed in seeds)]
        table.add_row(*row, *([] if estimate is None else [_left(cells, estimate)]))
    return Group(Text(grid.title, style="bold"), table)


def failures(grid: Grid, found: Statuses) -> dict[str, str]:
    """Return why cells failed, by what they are called."""
    return {
        cell.title: found[cell.name].message
        for cell in grid.cells
        if found[cell.name].state is State.FAILED
    }


def as_json(grid: Grid, found: Statuses, estimate: Estimate | None = None) -> list[dict[str, Any]]:
    """Return a plain record of each cell for machines."""
    seconds = {} if estimate is None else estimate.seconds
    return [
        {
            "name": cell.name,
            "at": dict(cell.at),
            "seed": cell.seed,
            "state": str(found[cell.name].state),
            "rounds": found[cell.name].rounds,
            "of": found[cell.name].of,
            "message": found[cell.name].message,
            "seconds_left": seconds.get(cell.name),
        }
        for cell in grid.cells
    ]


def _combinations(grid: Grid) -> list[list[Cell]]:
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in grid.cells:
        groups.setdefault(tuple(cell.at.values()), []).append(cell)
    return list(groups.values())


def _words(status: CellStatus) -> str:
    text = str(status.state)
    if status.state in (State.UNFINISHED, State.FAILED) and status.rounds:
        text = f"{status.rounds} of {status.of}" + (
            ", failed" if status.state is State.FAILED else ""
        )
    return f"[{STYLES[status.state]}]{text}[/]"


def _left(cells: list[Cell], estimate: Estimate) -> str:
    known = [estimate.seconds[cell.name] for cell in cells if cell.name in estimate.seconds]
    if any(cell.name in estimate.unknown for cell in cells):
        return "unknown"
    return format_duration(sum(known)) if known else ""
