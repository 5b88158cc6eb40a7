"""Stores the finished cells of a study in a few small files: scores, classes, curves, origin.

Stored cells stay where their run folder is gone, so that no cell is run twice.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fedbb._util.files import replacing
from fedbb.recipes.grid import Cell, Grid, read_grid
from fedbb.report.results import RunResult, summary_of
from fedbb.report.sweep.score_table import CellRun, finished_run, read_cells
from fedbb.runs.sweep import State
from studies.stored import RESULTS, Row, read_rows

TABLES = ("cells", "classes", "curves", "diverged")
NO_NUMBER = "the loss is "
"""Part of the message of a run that diverged; other failures may pass and are not stored."""

DIGITS = 5


def main(words: Sequence[str] | None = None) -> None:
    """Collect a grid's runs, or name the cells that are still to be run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grid", type=Path)
    parser.add_argument("runs", type=Path, nargs="?", help="where the cells' folders lie")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--note", help="a word on how they were run, for about.json")
    parser.add_argument(
        "--missing", action="store_true", help="print --only for what is not stored"
    )
    options = parser.parse_args(words)
    out = options.results / options.grid.stem
    if options.runs is not None:
        collect(options.grid, options.runs, out, options.note)
    if options.missing:
        print(" ".join(f"--only {cell.name}" for cell in missing(options.grid, out)))


def collect(path: Path, runs: Path, out: Path, note: str | None = None) -> None:
    """Write the results of a grid's finished cells, beside those stored before."""
    stored = {name: read_rows(out / f"{name}.csv") for name in TABLES}
    folders = [folder.name for folder in runs.iterdir() if folder.is_dir()]
    grid = _with_seeds(path, [row["cell"] for row in stored["cells"]] + folders)
    all_cells = read_cells(grid, runs)
    found = [cell for cell in all_cells if cell.state is State.FINISHED]
    failed = [cell for cell in all_cells if cell.state is State.FAILED]
    made = {
        "cells": [_cell_row(cell) for cell in found],
        "classes": [row for cell in found for row in _class_rows(cell)],
        "curves": [row for cell in found for row in _curve_rows(cell)],
        "diverged": [_diverged_row(cell) for cell in failed if NO_NUMBER in cell.message],
    }
    out.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        rows = _merge(grid, stored[name], made[name])
        if rows or stored[name]:
            write_rows(out / f"{name}.csv", rows)
    _about(out, path, grid, found, note)


def missing(path: Path, out: Path) -> list[Cell]:
    """Return the cells of a grid without stored results."""
    stored = {
        row["cell"] for name in ("cells", "diverged") for row in read_rows(out / f"{name}.csv")
    }
    return [cell for cell in read_grid(path).cells if cell.name not in stored]


def _with_seeds(path: Path, names: Iterable[str]) -> Grid:
    """Return the grid with its own seeds and those in the names of cells."""
    own = read_grid(path)
    parts = [part for name in names for part in name.split("_")]
    found_seeds = {
        int(part[4:]) for part in parts if part.startswith("seed") and part[4:].isdigit()
    }
    return read_grid(path, seeds=sorted(found_seeds | {cell.seed for cell in own.cells}))


def _cell_row(found: CellRun) -> Row:
    run = finished_run(found)
    summary = summary_of(run)
    final, best = summary.final.scores, summary.best
    row: Row = {"cell": found.cell.name, **found.cell.at, "seed": found.cell.seed}
    row |= {"train images": run.federation.train, "rounds": len(run.rounds)}
    row |= {f"test {name}": _round(value) for name, value in final["test"].macro.items()}
    if "validation" in final:
        macro = final["validation"].macro
        row |= {f"validation {name}": _round(value) for name, value in macro.items()}
    row |= {"best round": best.number, "best by": f"{summary.chosen_on} {summary.metric}"}
    row |= {f"best {name}": _round(value) for name, value in best.scores["test"].macro.items()}
    return row | {"seconds": round(run.seconds, 1), "sha256": summary.sha256}


def _diverged_row(found: CellRun) -> Row:
    labels = {"cell": found.cell.name, **found.cell.at, "seed": found.cell.seed}
    return labels | {"why": found.message}


def _class_rows(found: CellRun) -> Iterator[Row]:
    run = finished_run(found)
    scores = summary_of(run).final.scores["test"].per_class
    for place, name in enumerate(run.federation.classes):
        row: Row = {"cell": found.cell.name, "class": name}
        row["train cases"] = int(run.federation.class_counts[place])
        yield row | {metric: _round(values[place]) for metric, values in scores.items()}


def _curve_rows(found: CellRun) -> Iterator[Row]:
    run = finished_run(found)
    metric = summary_of(run).metric
    for scored in run.rounds:
        row: Row = {"cell": found.cell.name, "round": scored.number, "metric": metric}
        yield row | {name: _round(part.macro[metric]) for name, part in scored.scores.items()}


def _round(value: float) -> float | str:
    return "" if math.isnan(value) else round(float(value), DIGITS)


def _merge(grid: Grid, stored: Sequence[Row], made: Sequence[Row]) -> list[Row]:
    """Return the rows in the grid's order, new ones in place of old, none of cells it has not."""
    order = {cell.name: place for place, cell in enumerate(grid.cells)}
    fresh = {row["cell"] for row in made}
    old = [row for row in stored if row["cell"] in order and row["cell"] not in fresh]
    return sorted([*old, *made], key=lambda row: order[row["cell"]])


def _about(out: Path, path: Path, grid: Grid, found: Sequence[CellRun], note: str | None) -> None:
    rows = read_rows(out / "cells.csv")
    place = out / "about.json"
    before = json.loads(place.read_text("utf-8")) if place.exists() else {}
    made_with = [_origin(finished_run(cell)) for cell in found] + before.get("made with", [])
    about = {
        "title": grid.title,
        "caption": grid.caption,
        "command": f"fedbb sweep studies/{path.name}",
        "finished": len(rows),
        "cells": len(grid.cells),
        "seeds": sorted({cell.seed for cell in grid.cells}),
        "core hours": round(sum(float(row["seconds"]) for row in rows) / 3600, 2),
        "note": note or before.get("note", ""),
        "made with": [dict(pairs) for pairs in dict.fromkeys(tuple(o.items()) for o in made_with)],
    }
    with replacing(place) as file:
        file.write((json.dumps(about, indent=1, ensure_ascii=False) + "\n").encode())


def _origin(run: RunResult) -> dict[str, str]:
    names = ("fedbb", "torch", "numpy", "python", "machine", "cores", "vectors")
    return {name: run.environment[name] for name in names}


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write lines as a CSV file, whole or not at all."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with replacing(path) as file:
        file.write(text.getvalue().encode())


if __name__ == "__main__":
    main()
