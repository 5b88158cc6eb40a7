"""Rows and differences laid out as tables of words, for Markdown, the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedbb.report.tables import Difference, Row
from fedbb.report.verdict import Outcome, outcome
from fedbb.report.wording import difference_text, metric_title, score_text

MARKDOWN_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]|<>"})
READINGS = {
    Outcome.AHEAD: "ahead",
    Outcome.BEHIND: "behind",
    Outcome.TIE: "tie",
    Outcome.ONE_SEED: "unsure",
    Outcome.UNKNOWN: "not comparable",
}


@dataclass(frozen=True)
class Table:
    """A caption, the heads of the columns, and the cells row by row; the first column names."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def final_table(rows: Sequence[Row]) -> Table:
    """Return the scores after the last round, one line a method, one column a metric."""
    caption = "Test scores after the last round"
    return _score_table(rows, caption, {_key(row): score_text(row.final) for row in rows})


def best_table(rows: Sequence[Row]) -> Table:
    """Return the scores of each run's best round, with the data it was chosen on."""
    chosen_on = rows[0].chosen_on
    caption = f"Test scores of each run's best round, chosen on {chosen_on} data"
    if chosen_on == "test":
        caption += " and therefore too rosy"
    return _score_table(rows, caption, {_key(row): score_text(row.best) for row in rows})


def difference_table(differences: Sequence[Difference]) -> Table:
    """Return the paired differences in points, one line a pair of methods, one column a metric."""
    metrics = list(dict.fromkeys(item.metric for item in differences))
    cells = {(_pair(item), item.metric): _standing(item) for item in differences}
    lines = tuple(
        (pair, *(cells[pair, metric] for metric in metrics))
        for pair in dict.fromkeys(_pair(item) for item in differences)
    )
    head = ("difference", *(metric_title(metric) for metric in metrics))
    caption = "Differences after the last round (in brackets: seeds with the higher score, of all)"
    return Table(caption, head, lines)


def _pair(item: Difference) -> str:
    return f"{item.method} − {item.against}"


def _standing(item: Difference) -> str:
    reading = outcome(item)
    if reading is Outcome.UNKNOWN:
        return READINGS[reading]
    count = f"{item.ahead}/{item.spread.number}"
    return f"{difference_text(item.spread)}, {READINGS[reading]} ({count})"


def markdown_table(table: Table) -> str:
    """Return a table in Markdown, its figures to the right, under its caption."""
    alignment = [":--"] + ["--:"] * (len(table.head) - 1)
    lines = [table.head, tuple(alignment), *table.rows]
    cells = [[cell if line is lines[1] else escape(cell) for cell in line] for line in lines]
    grid = "\n".join(f"| {' | '.join(line)} |" for line in cells)
    return f"{escape(table.caption)}:\n\n{grid}\n"


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return " ".join(text.split()).translate(MARKDOWN_SIGNS)


def to_bytes(text: str) -> bytes:
    """Return UTF-8, with a question mark for half a letter, which JSON can bring in."""
    return text.encode("utf-8", "replace")


def _key(row: Row) -> tuple[str, str]:
    return row.method, row.metric


def _score_table(rows: Sequence[Row], caption: str, texts: dict[tuple[str, str], str]) -> Table:
    metrics = list(dict.fromkeys(row.metric for row in rows))
    seeds = {row.method: len(row.seeds) for row in rows}
    lines = tuple(
        (method, *(texts[method, metric] for metric in metrics), str(number))
        for method, number in seeds.items()
    )
    head = ("method", *(metric_title(metric) for metric in metrics), "seeds")
    return Table(caption, head, lines)
