"""The tables of a report with what each cell is sorted by; their words are those of `text`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbb.report.method_comparison import MethodComparison, MethodScore, difference_table
from fedbb.report.results import RunResult, score_on_test, summary_of
from fedbb.report.site.fairness import Fairness, fairness_of
from fedbb.report.statistics import Spread, spread_of
from fedbb.report.wording import UNDEFINED, metric_title, score_text

Cell = str | tuple[str, float | None]
"""A text, or a text with the number it is sorted by, None for last."""

Scores = Mapping[tuple[str, str, str], Cell]
BLANK: Cell = (UNDEFINED, None)


@dataclass(frozen=True)
class Sheet:
    """A table whose columns named `data` and `method` a reader can filter by."""

    name: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the sheet for the page."""
        parts = {"name": self.name, "caption": self.caption, "note": self.note}
        return {**parts, "head": list(self.head), "rows": [list(row) for row in self.rows]}


def sheets_of(parts: Sequence[MethodComparison]) -> list[Sheet]:
    """Return all tables of a report."""
    makers = (final_sheet, difference_sheet, fairness_sheet, best_sheet, run_sheet)
    return [sheet for sheet in (make(parts) for make in makers) if sheet.rows]


def final_sheet(parts: Sequence[MethodComparison]) -> Sheet:
    """Return the scores after the last round, and what a run cost."""
    head, rows = _score_rows(parts, lambda row: row.final)
    costs = [
        _count(spread_of(run.seconds for run in method.runs).mean)
        for part in parts
        for method in part.comparison.methods
    ]
    rows = [(*row, cost) for row, cost in zip(rows, costs, strict=True)]
    caption = "Test scores after the last round"
    return Sheet("final", caption, (*head, "seconds a run"), tuple(rows))


def best_sheet(parts: Sequence[MethodComparison]) -> Sheet:
    """Return the scores of each run's best round, with the data it was chosen on."""
    head, rows = _score_rows(parts, lambda row: row.best)
    chosen = [
        part.rows[0].chosen_on if part.rows else ""
        for part in parts
        for _ in part.comparison.methods
    ]
    rows = [(*row, where) for row, where in zip(rows, chosen, strict=True)]
    note = "A best round chosen on test data makes the score look better than it is."
    caption = "Test scores of each run's best round"
    return Sheet(
        "best", caption, (*head, "chosen on"), tuple(rows), note if "test" in chosen else ""
    )


def difference_sheet(parts: Sequence[MethodComparison]) -> Sheet:
    """Return paired differences against FedAvg and the control."""
    metrics = _metrics(parts)
    rows: list[tuple[Cell, ...]] = []
    for part in parts:
        if not part.differences:
            continue
        own = list(dict.fromkeys(item.metric for item in part.differences))
        pairs = list(dict.fromkeys((item.method, item.against) for item in part.differences))
        means = {(d.method, d.against, d.metric): d.paired.spread.mean for d in part.differences}
        for pair, line in zip(pairs, difference_table(part.differences).texts, strict=True):
            texts = dict(zip(own, line[1:], strict=True))
            cells = [
                (texts[metric], _order(means[*pair, metric])) if metric in texts else BLANK
                for metric in metrics
            ]
            rows.append((part.comparison.title, *pair, *cells))
    head = ("data", "method", "minus", *(metric_title(metric) for metric in metrics))
    caption = "Differences after the last round on the same seeds"
    return Sheet("differences", caption, head, tuple(rows))


def fairness_sheet(parts: Sequence[MethodComparison]) -> Sheet:
    """Return how evenly each method serves classes and clients."""
    rows = tuple(
        (part.comparison.title, method.label, *_fair(fairness_of(part.comparison, method)))
        for part in parts
        for method in part.comparison.methods
    )
    head = ("data", "method", "worst class", "its score", "spread over classes", "head third")
    note = (
        "A class's score is its recall, or its average precision where samples have several "
        "labels. A client's is the mean of the class scores weighed by the client's own mix of "
        "labels. Spread is the standard deviation over classes, or clients, of one run."
    )
    rest = ("tail third", "worst client", "spread over clients")
    return Sheet("fairness", "Fairness after the last round", (*head, *rest), rows, note)


def run_sheet(parts: Sequence[MethodComparison]) -> Sheet:
    """Return every run by itself."""
    rows = tuple(
        _run_row(run, part.comparison.title, method.label)
        for part in parts
        for method in part.comparison.methods
        for run in method.runs
    )
    head = ("run", "data", "method", "seed", "metric", "final", "best", "best round", "seconds")
    return Sheet("runs", "", head, rows)


def score_cell(spread: Spread) -> Cell:
    """Return a score in points, to be sorted by its mean."""
    return score_text(spread), _order(spread.mean)


def _score_rows(
    parts: Sequence[MethodComparison], pick: Callable[[MethodScore], Spread]
) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    metrics = _metrics(parts)
    rows: list[tuple[Cell, ...]] = []
    for part in parts:
        found = {(row.method, row.metric): score_cell(pick(row)) for row in part.rows}
        for method in part.comparison.methods:
            cells = (found.get((method.label, metric), BLANK) for metric in metrics)
            seeds = len(method.seeds)
            rows.append((part.comparison.title, method.label, *cells, (str(seeds), seeds)))
    return ("data", "method", *(metric_title(metric) for metric in metrics), "seeds"), rows


def _metrics(parts: Sequence[MethodComparison]) -> list[str]:
    return list(dict.fromkeys(row.metric for part in parts for row in part.rows))


def _fair(found: Fairness) -> tuple[Cell, ...]:
    spreads = (found.worst_class_score, found.class_deviation, found.head, found.tail)
    clients = (found.worst_client, found.client_deviation)
    return (found.worst_class or UNDEFINED, *map(score_cell, (*spreads, *clients)))


def _run_row(run: RunResult, title: str, label: str) -> tuple[Cell, ...]:
    summary = summary_of(run)
    final, best = (
        score_cell(spread_of([score_on_test(scored, summary.metric)]))
        for scored in (summary.final, summary.best)
    )
    seed, number = run.recipe.seed, summary.best.number
    return (
        *(run.path.name, title, label, (str(seed), seed), metric_title(summary.metric)),
        *(final, best, (str(number), number), _count(run.seconds)),
    )


def _count(value: float) -> Cell:
    return (UNDEFINED, None) if math.isnan(value) else (f"{value:,.1f}", round(value, 3))


def _order(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)
