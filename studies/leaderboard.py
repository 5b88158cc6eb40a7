"""One page with every method in every setting of the study, from the stored results.

`python -m studies.leaderboard` writes docs/leaderboard.html. Each row names its cells: `fedbb
verify` prints the recipe of a cell, or runs it again and says whether the same comes out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedbb._util.files import finite_or_none
from fedbb._util.table import Cell, Column, Table, make_table, to_page
from fedbb.report.page.shell import Page, write_page
from fedbb.report.statistics import Interval, interval_of, spread_of
from fedbb.report.text import metric_title
from studies.stored import GRIDS, RESULTS, ROOT, Row, StoredGrid, read_stored

TITLE = "Leaderboard of the fedbb studies"
PAGE = ROOT / "docs" / "leaderboard.html"
HEAD = (
    "method",
    "setting",
    "seeds",
    Column("score", "right"),
    Column("interval", "right"),
    Column("worst class", "right"),
    Column("relative time", "right"),
    "cell: digest of its model",
)


def main(words: Sequence[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    print(write_page(options.out, make_page(options.results)))


def make_page(results: Path = RESULTS, grids: Path = GRIDS) -> Page:
    """Return the page of all grids with stored results."""
    boards = []
    for path in sorted(results.glob("*/about.json")):
        stored = read_stored(path.parent.name, results, grids)
        if stored is not None and stored.cells and "method" in stored.grid.axes:
            boards.append(_board(stored))
    body, script = (
        Path(__file__).with_name(f"leaderboard.{ending}").read_text("utf-8")
        for ending in ("html", "js")
    )
    return Page(TITLE, finite_or_none({"boards": boards}), body, script=script)


def _board(stored: StoredGrid) -> dict[str, object]:
    first = _short(stored.cells[0])
    return {
        "name": stored.name,
        "title": stored.grid.title,
        "caption": stored.grid.caption,
        "command": stored.about["command"],
        "verify": f"fedbb verify studies/{stored.name}.toml {first}",
        "table": to_page(leaderboard(stored)),
    }


def leaderboard(stored: StoredGrid) -> Table:
    """Return a row for each method in each setting, the best of a setting first."""
    found = _settings(stored)
    ordered = sorted(found, key=lambda at: (at[1], -spread_of(_scores(stored, found[at])).mean))
    return make_table(HEAD, [_row(stored, *at, found[at]) for at in ordered], words=3)


def _settings(stored: StoredGrid) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    axes = [axis for axis in stored.grid.axes if axis != "method"]
    for row in stored.cells:
        setting = ", ".join(row[axis] for axis in axes)
        found.setdefault((row["method"], setting), []).append(row)
    return found


def _metric(stored: StoredGrid) -> str:
    return stored.grid.metrics[0]


def _scores(stored: StoredGrid, cells: Sequence[Row]) -> list[float]:
    return [float(row[f"test {_metric(stored)}"]) for row in cells]


def _row(stored: StoredGrid, method: str, setting: str, cells: Sequence[Row]) -> Sequence[object]:
    scores = _scores(stored, cells)
    interval = interval_of(scores)
    worst = spread_of(_worst_classes(stored, cells)).mean
    time = _relative_time(stored, setting, cells)
    mean = spread_of(scores).mean
    digests = ", ".join(f"{_short(row)}: {row['sha256'][:12]}" for row in cells)
    return (
        method,
        setting or metric_title(_metric(stored)),
        ", ".join(str(row["seed"]) for row in cells),
        Cell(f"{100 * mean:.1f}", mean),
        Cell(_interval_text(interval), interval.low),
        Cell("–" if worst != worst else f"{100 * worst:.1f}", worst),
        Cell("–" if time is None else f"{time:.2f}", time),
        digests,
    )


def _short(row: Row) -> str:
    """Return the end of a cell's name, by which `fedbb verify` finds it."""
    return str(row["cell"].rpartition("_")[2])


def _interval_text(interval: Interval) -> str:
    if interval.low != interval.low:  # NaN: a single seed
        return "–"
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f}"


def _worst_classes(stored: StoredGrid, cells: Sequence[Row]) -> Iterator[float]:
    score = "recall" if stored.classes and stored.classes[0].get("recall") else "auroc"
    by_cell: dict[str, list[float]] = {}
    for line in stored.classes:
        if line.get(score):
            by_cell.setdefault(line["cell"], []).append(float(line[score]))
    for row in cells:
        if values := by_cell.get(row["cell"]):
            yield min(values)


def _relative_time(stored: StoredGrid, setting: str, cells: Sequence[Row]) -> float | None:
    base: Mapping[str, Row] = {
        row["seed"]: row for row in _settings(stored).get(("FedAvg", setting), [])
    }
    ratios = [
        float(row["seconds"]) / float(base[row["seed"]]["seconds"])
        for row in cells
        if row["seed"] in base
    ]
    return spread_of(ratios).mean if ratios else None


if __name__ == "__main__":
    main()
