"""A grid's table as Markdown, CSV, LaTeX and JSON; equal results give equal bytes."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from fedbb._util.json import finite_or_none
from fedbb.report.prose import UNITS
from fedbb.report.sweep import layout
from fedbb.report.sweep.score_table import Entry, GridTable, Ours, Score
from fedbb.report.table import make_table, to_latex
from fedbb.report.text import Table, escape, markdown_table

FORMAT = "fedbb-grid-table-1"
# Programs that open a CSV file take a cell that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_markdown(table: GridTable, runs: str) -> str:
    """Return the table in Markdown; `runs` is where the run folders lie, seen from the file."""
    grid = table.grid
    blocks = [f"# {escape(grid.title)}", escape(grid.caption)]
    blocks += [f"In the paper: {escape(grid.source)}."] if grid.source else []
    blocks += [UNITS, "\n".join(f"- {escape(remark)}" for remark in layout.notes(table))]
    tables = [layout.overview(table), layout.numbers(table), layout.gaps(table)]
    blocks += [_titled(part) for part in tables if part.rows]
    listed = layout.runs(table)
    if listed.rows:
        blocks += [f"{_titled(listed)}\nFolders are in {escape(runs)}."]
    return "\n\n".join(block.strip() for block in blocks if block) + "\n"


def costs_as_markdown(table: GridTable) -> str:
    """Return what the runs took; apart from the table, as no two runs take the same time."""
    title = escape(f"{table.grid.title}: cost")
    return f"# {title}\n\n{markdown_table(layout.costs(table))}"


def as_latex(table: GridTable) -> str:
    """Return the overview and the paired differences as two floats, to be read in by input."""
    grid, at_glance = table.grid, layout.overview(table)
    caption = [f"{grid.title}.", grid.caption, f"{at_glance.caption}.", *grid.notes]
    caption += [f"In the paper: {grid.source}."] if grid.source else []
    words = 1 + table.has_paper
    whole = make_table(at_glance.head, at_glance.rows, " ".join(caption), words=words)
    parts = [to_latex(whole, merge_names=True)]
    gaps = layout.gaps(table)
    if gaps.rows:
        title = f"{grid.title}: {gaps.caption}"
        whole = make_table(gaps.head, gaps.rows, title, words=len(table.axes) + 3)
        parts.append(to_latex(whole, merge_names=True))
    notes = "".join(f"% {_comment(remark)}\n" for remark in layout.notes(table))
    return f"% Needs \\usepackage{{booktabs}}.\n{notes}" + "\n".join(parts)


def as_csv(table: GridTable) -> str:
    """Return a line for each place and metric with full precision; empty where undefined."""
    lines = [_line(table, entry, score) for entry in table.entries for score in entry.scores]
    axes = [table.grid.rows, *table.axes]
    head = [*(f"axis: {axis}" for axis in axes), *(lines[0] if lines else {})]
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([_safe(name) for name in head])
    places = [entry for entry in table.entries for _ in entry.scores]
    for entry, line in zip(places, lines, strict=True):
        writer.writerow([_safe(cell) for cell in (entry.row, *entry.column, *line.values())])
    return target.getvalue()


def as_json(table: GridTable, runs: str) -> str:
    """Return everything, each place with its run folders, which lie in `runs`."""
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


def _titled(table: Table) -> str:
    _, _, grid = markdown_table(table).partition("\n\n")
    return f"## {escape(table.caption)}\n\n{grid}"


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


def _safe(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if not isinstance(cell, str):
        return repr(cell)
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def _plain_entry(entry: Entry, chosen: str) -> dict[str, Any]:
    """Return an entry without its seconds, which differ from one time to the next."""
    plain: dict[str, Any] = finite_or_none(entry)
    del plain["seconds"]
    for score, values in zip(entry.scores, plain["scores"], strict=True):
        for ours in (values["best"], values["final"]):
            ours["gaps"] = [gap | gap.pop("paired") for gap in ours["gaps"]]
        values["difference"] = finite_or_none(score.difference(chosen))
    return plain
