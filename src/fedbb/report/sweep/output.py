"""A grid's table from its run folders, written in every format or shown in the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from fedbb._util.files import replacing
from fedbb.errors import RunError
from fedbb.paper.tables import Printed
from fedbb.recipes.grid.grid import Grid
from fedbb.report.formats import as_csv, as_json, as_latex, as_markdown, costs_as_markdown
from fedbb.report.sweep import layout
from fedbb.report.sweep.cell_runs import read_cells
from fedbb.report.sweep.score_table import GridTable, table_of
from fedbb.report.table import elide
from fedbb.report.text import Table, to_bytes

LONGEST = 120


def read_table(grid: Grid, printed: Sequence[Printed], runs_folder: Path) -> GridTable:
    """Return the table of a grid whose runs lie in a folder, each under its cell's name."""
    return table_of(grid, printed, read_cells(grid, runs_folder))


def write_tables(
    grid: Grid, printed: Sequence[Printed], runs_folder: Path, out: Path
) -> list[Path]:
    """Write table.md, .csv, .tex and .json and cost.md into a folder, and return their paths.

    Equal results give equal bytes. Times are in cost.md alone, for no two runs take the same.
    """
    table = read_table(grid, printed, runs_folder)
    runs = Path(os.path.relpath(runs_folder, out)).as_posix()
    texts = {
        "table.md": as_markdown(table, runs),
        "table.csv": as_csv(table),
        "table.tex": as_latex(table),
        "table.json": as_json(table, runs),
        "cost.md": costs_as_markdown(table),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with replacing(out / name) as file:
                file.write(to_bytes(text))
    except OSError as error:
        raise RunError(f"the tables cannot be written to {out}: {error}") from error
    return [out / name for name in texts]


def show_table(table: GridTable) -> Group:
    """Return the table for the terminal: overview, paired differences, cost and notes."""
    return Group(*_parts(table))


def _parts(table: GridTable) -> Iterator[RichTable | Text]:
    yield Text(_plain(table.grid.title), style="bold")
    if table.grid.caption:
        yield Text(_plain(table.grid.caption, 1000))
    words = len(table.axes) + 1
    yield _rich(layout.overview(table), 1 + table.has_paper)
    differences = layout.gaps(table)
    if differences.rows:
        yield _rich(differences, words + 2)
    if any(entry.finished for entry in table.entries):
        yield _rich(layout.costs(table), words)
    for note in layout.notes(table):
        yield Text(f"· {_plain(note, 1000)}", style="dim")


def _rich(table: Table, words: int) -> RichTable:
    """Return a table whose first columns hold words; a name is not said twice in a row."""
    shown = RichTable(title=Text(_plain(table.caption)), title_justify="left", box=None)
    for place, name in enumerate(table.head):
        shown.add_column(Text(_plain(name)), justify="left" if place < words else "right")
    before = None
    for name, *others in table.rows:
        first = "" if name == before else name
        shown.add_row(*(Text(_plain(cell)) for cell in (first, *others)))
        before = name
    return shown


def _plain(text: str, length: int = LONGEST) -> str:
    """Return text without signs that could steer the terminal."""
    return elide(text, length)
