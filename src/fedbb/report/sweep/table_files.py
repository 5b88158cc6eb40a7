"""A grid's table from its run folders: as Markdown, CSV, LaTeX and JSON, and for the terminal."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from fedbb._util.files import finite_or_none, write_text
from fedbb._util.table import (
    UNDEFINED,
    Table,
    elide,
    escape_markdown,
    make_table,
    to_csv,
    to_latex,
    to_markdown,
    to_rich,
)
from fedbb._util.text import counted
from fedbb.paper.tables import Printed
from fedbb.recipes.grid import Grid
from fedbb.report.statistics import Spread
from fedbb.report.sweep.score_table import (
    Entry,
    GridTable,
    Ours,
    Score,
    Trace,
    read_cells,
    table_of,
)
from fedbb.report.text import UNITS, capitalize, difference_text, metric_title, signed, spread_text
from fedbb.runs.sweep import State

ROUNDS = {"best": "best round", "final": "last round"}
Key = tuple[tuple[str, ...], str]


FORMAT = "fedbb-grid-table-1"
PROSE_LENGTH = 1000
"""Most letters of a caption or note in the terminal."""


def overview_table(table: GridTable) -> Table:
    """Return rows against columns by the grid's own choice of round: paper, ours, difference.

    Where the paper prints some of a column's metrics, only these are shown.
    """
    keys = _keys(table)
    what = ("",) if table.has_paper else ()
    lines = [
        (row, *((word,) if table.has_paper else ()), *(cells.get(key, UNDEFINED) for key in keys))
        for row in table.grid.axes[table.grid.rows]
        for word, cells in _lines(table, row)
    ]
    head = (table.grid.rows, *what, *_heads(table, keys))
    return make_table(head, lines, _caption(table), words=1 + table.has_paper)


def number_table(table: GridTable) -> Table:
    """Return every number on a line of its own, best and last round kept apart."""
    chosen = table.grid.chosen
    lines = [
        (
            *_place(entry, score),
            *([paper_text(score)] if table.has_paper else []),
            spread_text(score.best.spread),
            spread_text(score.final.spread),
            *([signed(score.difference(chosen), 2)] if table.has_paper else []),
            entry.status,
            _count(entry.images),
        )
        for entry, score in _scores(table)
    ]
    paper = ("paper",) if table.has_paper else ()
    against = (f"{ROUNDS[chosen]} − paper",) if table.has_paper else ()
    ours = (*paper, *ROUNDS.values(), *against, "seeds", "images per run")
    head = (*_axes(table), "metric", *ours)
    return make_table(head, lines, "Every number", words=len(table.axes) + 2)


def difference_table(table: GridTable) -> Table:
    """Return the paired differences against FedAvg and the control, with their intervals."""
    lines = [
        (
            *_place(entry, score),
            gap.against + (" (control)" if gap.is_control else ""),
            difference_text(best.paired, decimals=2),
            difference_text(gap.paired, decimals=2),
            str(len(gap.paired.seeds)),
        )
        for entry, score in _scores(table)
        for best, gap in zip(score.best.gaps, score.final.gaps, strict=True)
        if entry.finished
    ]
    head = (*_axes(table), "metric", "against", "best round", "last round", "pairs")
    caption = "Paired differences with 95 % intervals"
    return make_table(head, lines, caption, words=len(table.axes) + 3)


def cost_table(table: GridTable) -> Table:
    """Return what one run took: seconds in its rounds, and images that its clients processed."""
    printed = any(entry.minutes is not None for entry in table.entries)
    lines = [
        (
            *(entry.row, *entry.column),
            *([_minutes(entry)] if printed else []),
            spread_text(entry.seconds, 1),
            _count(entry.images),
            _rate(entry),
            entry.status,
        )
        for entry in table.entries
    ]
    paper = ("paper, minutes",) if printed else ()
    head = (*_axes(table), *paper, "seconds", "images", "images per second", "seeds")
    return make_table(head, lines, "What one run took", words=len(table.axes) + 1)


def run_table(table: GridTable) -> Table:
    """Return the run folders behind every place, and what is wrong with those that failed."""
    lines = [
        (*(entry.row, *entry.column), str(run.seed), run.folder, state_text(run))
        for entry in table.entries
        for run in entry.runs
    ]
    head = (*_axes(table), "seed", "folder", "state")
    return make_table(head, lines, "The runs behind the numbers", words=len(head))


def paper_text(score: Score) -> str:
    """Return the paper's number as it prints it."""
    if score.paper is None:
        return UNDEFINED
    spread = math.nan if score.paper.spread is None else score.paper.spread
    return spread_text(Spread(score.paper.mean, spread, 1))


def state_text(run: Trace) -> str:
    """Return the state of a run, and the reason if it is not finished."""
    return f"{run.state}: {run.message}" if run.message else str(run.state)


def notes_of(table: GridTable) -> list[str]:
    """Return notes on the scale, what is missing and why, the choice of rounds, and the paper."""
    found = [*table.grid.notes, *_progress(table), *_left_out(table), *_failures(table)]
    return list(dict.fromkeys([*found, *_optimism(table), *_of_paper(table)]))


def _caption(table: GridTable) -> str:
    seeds = {entry.wanted for entry in table.entries if entry.runs}
    if not seeds:
        return "Printed in the paper"
    number = f", {counted(max(seeds), 'seed')}" if len(seeds) == 1 else ""
    title = capitalize(ROUNDS[table.grid.chosen]) + number
    if not table.has_paper:
        return f"{title}: ours"
    # A smaller scale differs from the paper by more than luck, which a bare number would hide.
    scale = ", ours at another scale (see the notes)" if table.grid.notes else ""
    return f"{title}: the paper and ours{scale}"


def _keys(table: GridTable) -> list[Key]:
    """Return the columns, each with the metrics that are shown of it."""
    every = dict.fromkeys(
        (entry.column, metric) for entry in table.entries for metric in table.metrics
    )
    printed = {(entry.column, score.metric) for entry, score in _scores(table) if score.paper}
    columns = {column for column, _ in printed}
    return [key for key in every if key in printed or key[0] not in columns]


def _heads(table: GridTable, keys: Sequence[Key]) -> list[str]:
    several = len({metric for _, metric in keys}) > 1
    return [
        ", ".join((*column, *([metric_title(metric)] if several or not column else [])))
        for column, metric in keys
    ]


def _lines(table: GridTable, row: str) -> Iterator[tuple[str, dict[Key, str]]]:
    """Yield the lines of a row: those with anything to say, named by what they say."""
    chosen = table.grid.chosen
    found = [
        ((entry.column, score.metric), entry, score)
        for entry, score in _scores(table)
        if entry.row == row
    ]
    printed = any(score.paper for _, _, score in found)
    if printed:
        yield "paper", {key: paper_text(score) for key, _, score in found}
    if any(entry.runs for entry in table.entries):
        yield "ours", {key: _ours(entry, score, chosen) for key, entry, score in found}
        if printed:
            gaps = {key: signed(score.difference(chosen), 2) for key, _, score in found}
            yield "difference", gaps


def _ours(entry: Entry, score: Score, chosen: str) -> str:
    """Return our score, or one or two words on why there is none; the notes say more."""
    if not entry.finished:
        return entry.status.partition(":")[0]
    few = f" ({entry.status})" if entry.finished < entry.wanted else ""
    return spread_text(score.ours(chosen).spread) + few


def _progress(table: GridTable) -> Iterator[str]:
    states = [run.state for entry in table.entries for run in entry.runs]
    if not states:
        yield "This grid has no runs; it shows printed numbers only."
        return
    counts = {state: states.count(state) for state in State}
    listed = [f"{number} {state}" for state, number in counts.items() if number]
    yield f"Of {len(states)} runs: {', '.join(listed)}."


def _left_out(table: GridTable) -> Iterator[str]:
    for entry in table.entries:
        if not entry.runs and ":" in entry.status:
            yield f"{entry.title}: {entry.status.rstrip('.')}."


def _failures(table: GridTable) -> Iterator[str]:
    for entry in table.entries:
        for run in entry.runs:
            if run.message:
                yield f"{entry.title}, seed {run.seed}: {state_text(run).rstrip('.')}."


def _optimism(table: GridTable) -> Iterator[str]:
    chosen = [run.chosen_on for entry in table.entries for run in entry.runs if run.chosen_on]
    number = chosen.count("test")
    if number:
        which = "every run" if number == len(chosen) else f"{number} of {len(chosen)} runs"
        yield f"The best round of {which} was chosen on test data, so its score is optimistic."


def _of_paper(table: GridTable) -> Iterator[str]:
    for entry in table.entries:
        for score in entry.scores:
            if score.paper is not None and score.paper.note:
                yield f"{entry.title}, as printed: {score.paper.note}"
    if table.unplaced:
        yield f"{counted(len(table.unplaced), 'printed number')} without a place in this grid."


def _count(spread: Spread) -> str:
    return UNDEFINED if math.isnan(spread.mean) else f"{spread.mean:,.0f}"


def _minutes(entry: Entry) -> str:
    return UNDEFINED if entry.minutes is None else f"{entry.minutes:,.0f}"


def _rate(entry: Entry) -> str:
    seconds = entry.seconds.mean
    return f"{entry.images.mean / seconds:,.0f}" if seconds > 0 else UNDEFINED


def _axes(table: GridTable) -> tuple[str, ...]:
    return (table.grid.rows, *table.axes)


def _axis(name: str) -> str:
    """Return the column of an axis, which no other column can have."""
    return f"axis: {name}"


def _place(entry: Entry, score: Score) -> tuple[str, ...]:
    return (entry.row, *entry.column, metric_title(score.metric))


def _scores(table: GridTable) -> list[tuple[Entry, Score]]:
    return [(entry, score) for entry in table.entries for score in entry.scores]


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
    blocks += [UNITS, "\n".join(f"- {escape_markdown(note)}" for note in notes_of(table))]
    tables = [overview_table(table), number_table(table), difference_table(table)]
    blocks += [_titled(part) for part in tables if part.rows]
    listed = run_table(table)
    if listed.rows:
        blocks += [f"{_titled(listed)}\nFolders are in {escape_markdown(runs)}."]
    return "\n\n".join(block.strip() for block in blocks if block) + "\n"


def costs_as_markdown(table: GridTable) -> str:
    """Return what the runs took; apart from the table, as no two runs take the same time."""
    title = escape_markdown(f"{table.grid.title}: cost")
    return f"# {title}\n\n{to_markdown(cost_table(table), captioned=True)}"


def as_latex(table: GridTable) -> str:
    """Return the overview and the paired differences as two floats, to be read in by input."""
    grid, overview, gaps = table.grid, overview_table(table), difference_table(table)
    caption = [f"{grid.title}.", grid.caption, f"{overview.caption}.", *grid.notes]
    caption += [f"In the paper: {grid.source}."] if grid.source else []
    parts = [to_latex(replace(overview, caption=" ".join(caption)), merge_names=True)]
    if gaps.rows:
        title = f"{grid.title}: {gaps.caption}"
        parts.append(to_latex(replace(gaps, caption=title), merge_names=True))
    notes = "".join(f"% {_comment(note)}\n" for note in notes_of(table))
    return f"% Needs \\usepackage{{booktabs}}.\n{notes}" + "\n".join(parts)


def as_csv(table: GridTable) -> str:
    """Return a line for each place and metric with full precision; empty where undefined."""
    rows = as_rows(table)
    head = list(rows[0]) if rows else [_axis(name) for name in _axes(table)]
    return to_csv(make_table(head, [tuple(row.values()) for row in rows]))


def as_rows(table: GridTable) -> list[dict[str, Any]]:
    """Return what table.csv holds: for each place and metric a value for each column."""
    return [
        dict(zip(map(_axis, _axes(table)), (entry.row, *entry.column), strict=True))
        | _line(table, entry, score)
        for entry, score in _scores(table)
    ]


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
        "remarks": notes_of(table),
        "runs": runs,
        "entries": [_plain_entry(entry, grid.chosen) for entry in table.entries],
        "unplaced": [finite_or_none(number) for number in table.unplaced],
    }
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _shown(table: GridTable) -> Iterator[RichTable | Text]:
    yield Text(elide(table.grid.title, PROSE_LENGTH), style="bold")
    if table.grid.caption:
        yield Text(elide(table.grid.caption, PROSE_LENGTH))
    yield to_rich(overview_table(table), merge_names=True)
    differences = difference_table(table)
    if differences.rows:
        yield to_rich(differences, merge_names=True)
    if any(entry.finished for entry in table.entries):
        yield to_rich(cost_table(table), merge_names=True)
    for note in notes_of(table):
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
