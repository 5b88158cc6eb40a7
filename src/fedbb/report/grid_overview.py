"""A grid's table at a glance: rows against columns, the paper's numbers above ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedbb.report.grid_layout import ROUNDS, paper_text, score_text, signed
from fedbb.report.grid_scores import Entry, GridTable, Score
from fedbb.report.text import Table
from fedbb.report.wording import UNDEFINED, capitalize, metric_title

Key = tuple[tuple[str, ...], str]


def overview(table: GridTable) -> Table:
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
    return Table(_caption(table), (table.grid.rows, *what, *_heads(table, keys)), tuple(lines))


def _caption(table: GridTable) -> str:
    seeds = {entry.wanted for entry in table.entries if entry.runs}
    if not seeds:
        return "Printed in the paper"
    number = f", {max(seeds)} seed{'s' if max(seeds) > 1 else ''}" if len(seeds) == 1 else ""
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
            gaps = {key: signed(score.difference(chosen)) for key, _, score in found}
            yield "difference", gaps


def _ours(entry: Entry, score: Score, chosen: str) -> str:
    """Return our score, or one or two words on why there is none; the remarks tell more."""
    if not entry.finished:
        return entry.status.partition(":")[0]
    few = f" ({entry.status})" if entry.finished < entry.wanted else ""
    return score_text(score.ours(chosen).spread) + few


def _scores(table: GridTable) -> list[tuple[Entry, Score]]:
    return [(entry, score) for entry in table.entries for score in entry.scores]
