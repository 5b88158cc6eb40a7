"""A grid's table from its run folders: as Markdown, CSV, LaTeX and JSON, and for the terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from fedbb._util.files import finite_or_none
from fedbb._util.table import (
    Table,
    elide,
    escape_markdown,
    make_table,
    to_csv,
    to_latex,
    to_markdown,
    to_rich,
)
from fedbb.paper.tables import Printed
from fedbb.recipes.grid.grid import Grid
from fedbb.report.output import write_text
from fedbb.report.prose import UNITS
from fedbb.report.sweep import layout
from fedbb.report.sweep.cell_runs import read_cells
from fedbb.report.sweep.score_table import Entry, GridTable, Ours, Score, table_of

FORMAT = "fedbb-grid-table-1"
PROSE_LENGTH = 1000
"""Most letters of a caption or note in the terminal."""


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
    return [write_text(out / name, text) for name, text in texts.items()]


def show_table(table: GridTable) -> Group:
    """Return the table for the terminal: overview, paired differences, cost and notes."""
    return Group(*_shown(table))


def as_markdown(table: GridTable, runs: str) -> str:
    """Return the table in Markdown; `runs` is the path from the file to the run folders."""
    grid = table.grid
    blocks = [f"# {escape_markdown(grid.title)}", escape_markdown(grid.caption)]
    blocks += [f"In the paper: {escape_markdown(grid.source)}."] if grid.source else []
    blocks += [UNITS, "\n".join(f"- {escape_markdown(note)}" for note in layout.notes(table))]
    tables = [layout.overview(table), layout.numbers(table), layout.gaps(table)]
    blocks += [_titled(part) for part in tables if part.rows]
    listed = layout.runs(table)
    if listed.rows:
        blocks += [f"{_titled(listed)}\nFolders are in {escape_markdown(runs)}."]
    return "\n\n".join(block.strip() for block in blocks if block) + "\n"


def costs_as_markdown(table: GridTable) -> str:
    """Return what the runs took; apart from the table, as no two runs take the same time."""
    title = escape_markdown(f"{table.grid.title}: cost")
    return f"# {title}\n\n{to_markdown(layout.costs(table), captioned=True)}"


def as_latex(table: GridTable) -> str:
    """Return the overview and the paired differences as two floats, to be read in by input."""
    grid, overview, gaps = table.grid, layout.overview(table), layout.gaps(table)
    caption = [f"{grid.title}.", grid.caption, f"{overview.caption}.", *grid.notes]
    caption += [f"In the paper: {grid.source}."] if grid.source else []
    parts = [to_latex(replace(overview, caption=" ".join(caption)), merge_names=True)]
    if gaps.rows:
        title = f"{grid.title}: {gaps.caption}"
        parts.append(to_latex(replace(gaps, caption=title), merge_names=True))
    notes = "".join(f"% {_comment(note)}\n" for note in layout.notes(table))
    return f"% Needs \\usepackage{{booktabs}}.\n{notes}" + "\n".join(parts)


def as_csv(table: GridTable) -> str:
    """Return a line for each place and metric with full precision; empty where undefined."""
    lines = [_line(table, entry, score) for entry in table.entries for score in entry.scores]
    axes = [table.grid.rows, *table.axes]
    head = [*(f"axis: {axis}" for axis in axes), *(lines[0] if lines else {})]
    places = [(entry.row, *entry.column) for entry in table.entries for _ in entry.scores]
    rows = [(*at, *line.values()) for at, line in zip(places, lines, strict=True)]
    return to_csv(make_table(head, rows))


def as_json(table: GridTable, runs: str) -> str:
    """Return everything, each place with its run folders, which are in `runs`."""
    grid = table.grid
    plain = {
        "format": FORMAT,
        "title": grid.title,
        "caption": grid.caption,
        "source": grid.source,
        "chosen": grid.chosen,
        "unit": "points of 100",
        "rows": grid.rows,
        "columns": list(table.axes),
        "metrics": list(table.metrics),
        "remarks": layout.notes(table),
        "runs": runs,
        "entries": [_plain_entry(entry, grid.chosen) for entry in table.entries],
        "unplaced": [finite_or_none(number) for number in table.unplaced],
    }
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _shown(table: GridTable) -> Iterator[RichTable | Text]:
    yield Text(elide(table.grid.title, PROSE_LENGTH), style="bold")
    if table.grid.caption:
        yield Text(elide(table.grid.caption, PROSE_LENGTH))
    yield to_rich(layout.overview(table), merge_names=True)
    differences = layout.gaps(table)
    if differences.rows:
        yield to_rich(differences, merge_names=True)
    if any(entry.finished for entry in table.entries):
        yield to_rich(layout.costs(table), merge_names=True)
    for note in layout.notes(table):
        yield Text(f"· {elide(note, PROSE_LENGTH)}", style="dim")


def _titled(table: Table) -> str:
    return f"## {escape_markdown(table.caption)}\n\n{to_markdown(table)}"


def _comment(text: str) -> str:
    return " ".join(text.split()).encode("ascii", "replace").decode()


def _line(table: GridTable, entry: Entry, score: Score) -> dict[str, Any]:
    paper = score.paper
    return {
        "metric": score.metric,
        "paper mean": None if paper is None else paper.mean,
        "paper spread": None if paper is None else paper.spread,
        "best mean": score.best.spread.mean,
        "best deviation": score.best.spread.deviation,
        "final mean": score.final.spread.mean,
        "final deviation": score.final.spread.deviation,
        f"{table.grid.chosen} minus paper": score.difference(table.grid.chosen),
        "seeds finished": entry.finished,
        "seeds wanted": entry.wanted,
        "status": entry.status,
        **_gap_columns("best", score.best),
        **_gap_columns("final", score.final),
        "images per run": entry.images.mean,
        "runs": " ".join(run.folder for run in entry.runs),
    }


def _gap_columns(chosen: str, ours: Ours) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for rival, is_control in (("FedAvg", False), ("control", True)):
        gap = next((gap for gap in ours.gaps if gap.is_control is is_control), None)
        name = f"{chosen} minus {rival}"
        columns[name] = None if gap is None else gap.paired.spread.mean
        columns[f"{name}, low"] = None if gap is None else gap.paired.interval.low
        columns[f"{name}, high"] = None if gap is None else gap.paired.interval.high
        columns[f"{name}, pairs"] = None if gap is None else len(gap.paired.seeds)
    return columns


def _plain_entry(entry: Entry, chosen: str) -> dict[str, Any]:
    """Return an entry without its seconds, which differ from one time to the next."""
    plain: dict[str, Any] = finite_or_none(entry)
    del plain["seconds"]
    for score, values in zip(entry.scores, plain["scores"], strict=True):
        for ours in (values["best"], values["final"]):
            ours["gaps"] = [gap | gap.pop("paired") for gap in ours["gaps"]]
        values["difference"] = finite_or_none(score.difference(chosen))
    return plain
