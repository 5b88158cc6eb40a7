"""Running the cells of a grid, and how far they are, for `fedbb sweep` and `fedbb paper`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedbb._util.table import Cell as TableCell
from fedbb._util.table import Column, Table, make_table, to_rich
from fedbb._util.text import counted
from fedbb.cli.common import echo, format_duration, print_json, progress_bar, say, stoppable
from fedbb.cli.screens import open_sweep_screen
from fedbb.errors import RecipeError, RunError
from fedbb.paper.tables import Printed
from fedbb.recipes.grid import Cell, Grid, select
from fedbb.runs.cost_estimate import Estimate, RemainingTime, estimate
from fedbb.runs.scheduler import prepare
from fedbb.runs.sweep import RUNS, CellStatus, State, failures, run_grid, statuses
from fedbb.simulation.pool.process_start import usable_cores

Seeds = Annotated[
    str | None, typer.Option("--seeds", help="Seeds instead of the file's, as in 0,1,2.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="TEXT", help='Only cells of this label, or "FedBB & seed 0".'),
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Cells at a time; one per core if not given.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List the cells and their cost; run nothing.")
]


@dataclass(frozen=True)
class SweepOptions:
    """Which cells of a grid run, on how many workers, and what is printed."""

    only: Sequence[str] = ()
    workers: int | None = None
    dry_run: bool = False
    json: bool = False
    quiet: bool = False
    allow_code: bool = False


@dataclass(frozen=True)
class GridFolder:
    """A grid, the numbers printed for it if it is the paper's, and the folder for all it gives."""

    grid: Grid
    out: Path
    printed: Sequence[Printed] = ()

    @property
    def runs(self) -> Path:
        """The folder that the cells' folders are in."""
        return self.out / RUNS


def run_sweep(folder: GridFolder, options: SweepOptions) -> None:
    """Print what a grid will cost, run what is missing, and write its tables.

    Exits with 1 if cells failed, with 130 if it was stopped.
    """
    chosen = select(folder.grid, options.only)
    if folder.out.exists() and not folder.out.is_dir():
        raise RunError(f"{folder.out} cannot be written: it is a file, and a sweep needs a folder")
    console = Console(quiet=options.quiet or options.json)
    try:
        with stoppable():
            cost = _announce(chosen, folder, options, console)
            if not options.dry_run:
                _run(chosen, folder, options, cost, console)
    except KeyboardInterrupt:
        kept = f"every finished round is kept in {folder.runs}"
        echo(f"stopped; {kept}, and the same command continues", err=True)
        raise typer.Exit(130) from None
    if not options.dry_run:
        _end(chosen, folder, options, console)


def parse_seeds(text: str | None) -> list[int] | None:
    """Return the seeds of a list such as "0,1,2"."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RecipeError(f"--seeds {text!r} must be whole numbers, as in 0,1,2") from None


def _announce(
    chosen: Grid, folder: GridFolder, options: SweepOptions, console: Console
) -> Estimate:
    """List the cells and say what those that are missing will cost."""
    if not options.dry_run:
        prepare()
    cost = _measure(chosen, folder.runs, console, options.allow_code)
    found, workers = statuses(chosen, folder.runs), _workers(chosen, options)
    console.print(to_rich(cells_table(chosen, found, cost)))
    say(console, headline(found, cost, workers))
    for why in dict.fromkeys(cost.unknown.values()):
        say(console, f"cost unknown: {why}")
    for note in chosen.notes:
        say(console, f"note: {note}")
    if options.json and (options.dry_run or not options.quiet):
        cells = as_json(chosen, found, cost)
        seconds = cost.wall(workers)
        plain = {"event": "estimate", "workers": workers, "seconds": seconds, "cells": cells}
        print_json(plain, indent=None)
    return cost


def _measure(chosen: Grid, runs: Path, console: Console, allow_code: bool) -> Estimate:
    with progress_bar("measuring the cost of the cells", console=console) as progress:
        return estimate(chosen, runs, progress, allow_code=allow_code)


def _run(
    chosen: Grid, folder: GridFolder, options: SweepOptions, cost: Estimate, console: Console
) -> None:
    workers = _workers(chosen, options)
    remaining = RemainingTime(chosen, cost, workers)
    started = run_grid(
        chosen, folder.runs, workers, seconds=cost.seconds, allow_code=options.allow_code
    )
    events = closing(started)
    screen = open_sweep_screen(console, remaining, as_json=options.json, quiet=options.quiet)
    with events as happened, screen as shown:
        for cell, event in happened:
            remaining.handle(cell, event)
            shown.handle(cell, event)


def _end(chosen: Grid, folder: GridFolder, options: SweepOptions, console: Console) -> None:
    from fedbb.report.sweep.table_files import write_tables

    found = statuses(chosen, folder.runs)
    failed = failures(chosen, found)
    written = write_tables(folder.grid, folder.printed, folder.runs, folder.out)
    say(console, headline(found))
    for title, why in failed.items():
        echo(f"failed {title}: {why}", err=True)
    say(console, f"table: {written[0]}")
    if options.json:
        tables = [str(path) for path in written]
        cells = as_json(chosen, found)
        print_json({"event": "end", "cells": cells, "tables": tables}, indent=None)
    if failed:
        raise typer.Exit(1)


def _workers(chosen: Grid, options: SweepOptions) -> int:
    return min(options.workers or usable_cores(), max(1, len(chosen.cells)))


Statuses = Mapping[str, CellStatus]

COLORS = {
    State.WAITING: "dim",
    State.UNFINISHED: "yellow",
    State.FINISHED: "green",
    State.FAILED: "red",
}


def headline(found: Statuses, estimate: Estimate | None = None, workers: int = 1) -> str:
    """Return how many cells there are, how far they are, and what the rest will cost."""
    states = Counter(status.state for status in found.values())
    parts = [counted(len(found), "cell")]
    for state in (State.FINISHED, State.UNFINISHED, State.FAILED):
        if states[state]:
            parts.append(f"{states[state]} {state}")
    if estimate is not None and estimate.per_round:
        bound = "at most about" if estimate.at_most else "about"
        wall = format_duration(estimate.wall(workers))
        parts.append(f"{bound} {wall} on {counted(workers, 'worker')}")
    if estimate is not None and estimate.unknown:
        parts.append(f"{len(estimate.unknown)} of unknown cost")
    return ", ".join(parts)


def cells_table(grid: Grid, found: Statuses, estimate: Estimate | None = None) -> Table:
    """Return a row for each combination with a column for each seed."""
    seeds = list(dict.fromkeys(cell.seed for cell in grid.cells))
    head: list[str | Column] = [*map(Column, grid.axes), *(f"seed {seed}" for seed in seeds)]
    rows = []
    for cells in _combinations(grid):
        states = {cell.seed: _state(found[cell.name]) for cell in cells}
        left = [] if estimate is None else [_left(cells, estimate)]
        rows.append((*cells[0].at.values(), *(states.get(seed, "") for seed in seeds), *left))
    head += [] if estimate is None else ["time left"]
    return make_table(head, rows, grid.title, words=0)


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


def _state(status: CellStatus) -> TableCell:
    text = str(status.state)
    if status.state in (State.UNFINISHED, State.FAILED) and status.rounds:
        text = f"{status.rounds} of {status.of}" + (
            ", failed" if status.state is State.FAILED else ""
        )
    return TableCell(text, color=COLORS[status.state])


def _left(cells: list[Cell], estimate: Estimate) -> str:
    known = [estimate.seconds[cell.name] for cell in cells if cell.name in estimate.seconds]
    if any(cell.name in estimate.unknown for cell in cells):
        return "unknown"
    return format_duration(sum(known)) if known else ""
