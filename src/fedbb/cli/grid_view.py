"""How far a grid has come, as a table of its combinations and a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedbb.cli.duration import spell
from fedbb.recipes.grid.grid import Cell, Grid
from fedbb.runs.cost_estimate import Estimate
from fedbb.runs.sweep import CellStatus, State

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
        parts.append(f"about {spell(estimate.wall(workers))} on {number}")
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
    return spell(sum(known)) if known else ""
