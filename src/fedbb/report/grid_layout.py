"""A grid's table laid out as tables of words, every number on a line of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedbb.report.grid_scores import Entry, Gap, GridTable, Score, Trace
from fedbb.report.interval import Interval
from fedbb.report.spread import Spread
from fedbb.report.text import Table
from fedbb.report.wording import UNDEFINED, metric_title

ROUNDS = {"best": "best round", "final": "last round"}
UNITS = (
    "Scores are on test data, in points of which 100 are perfect: mean ± sample standard deviation "
    "over seeds. Differences are paired by seed, with the 95 % interval of Student's t for their "
    "mean; [no interval] stands where fewer than two seeds have both scores."
)


def numbers(table: GridTable) -> Table:
    """Return every number on a line of its own, best and last round kept apart."""
    chosen = table.grid.chosen
    lines = [
        (
            *_place(entry, score),
            *([paper_text(score)] if table.has_paper else []),
            score_text(score.best.spread),
            score_text(score.final.spread),
            *([signed(score.difference(chosen))] if table.has_paper else []),
            entry.status,
            _count(entry.images),
        )
        for entry, score in _scores(table)
    ]
    paper = ("paper",) if table.has_paper else ()
    against = (f"{ROUNDS[chosen]} − paper",) if table.has_paper else ()
    ours = (*paper, *ROUNDS.values(), *against, "seeds", "images per run")
    return Table("Every number", (*_axes(table), "metric", *ours), tuple(lines))


def gaps(table: GridTable) -> Table:
    """Return the paired differences against FedAvg and the control, with their intervals."""
    lines = [
        (
            *_place(entry, score),
            gap.against + (" (control)" if gap.is_control else ""),
            gap_text(best),
            gap_text(gap),
            str(gap.spread.number),
        )
        for entry, score in _scores(table)
        for best, gap in zip(score.best.gaps, score.final.gaps, strict=True)
        if entry.finished
    ]
    head = (*_axes(table), "metric", "against", "best round", "last round", "pairs")
    return Table("Paired differences with 95 % intervals", head, tuple(lines))


def costs(table: GridTable) -> Table:
    """Return what one run took: seconds in its rounds, and images its clients went through."""
    printed = any(entry.minutes is not None for entry in table.entries)
    lines = [
        (
            *(entry.row, *entry.column),
            *([_minutes(entry)] if printed else []),
            _spread(entry.seconds, 1),
            _count(entry.images),
            _rate(entry),
            entry.status,
        )
        for entry in table.entries
    ]
    paper = ("paper, minutes",) if printed else ()
    head = (*_axes(table), *paper, "seconds", "images", "images per second", "seeds")
    return Table("What one run took", head, tuple(lines))


def runs(table: GridTable) -> Table:
    """Return the run folders behind every place, and what is wrong with those that lack."""
    lines = [
        (*(entry.row, *entry.column), str(run.seed), run.folder, state_text(run))
        for entry in table.entries
        for run in entry.runs
    ]
    return Table(
        "The runs behind the numbers", (*_axes(table), "seed", "folder", "state"), tuple(lines)
    )


def score_text(spread: Spread) -> str:
    """Return mean ± deviation with two decimals, as papers print them.

    >>> score_text(Spread(71.234, 0.4511, 3))
    '71.23 ± 0.45'
    """
    return _spread(spread, 2)


def gap_text(gap: Gap) -> str:
    """Return a signed mean difference and its interval."""
    if gap.spread.number == 0:
        return "not comparable"
    return f"{signed(gap.spread.mean)} {interval_text(gap.interval)}"


def interval_text(interval: Interval) -> str:
    """Return the ends in brackets."""
    if math.isnan(interval.low):
        return "[no interval]"
    return f"[{signed(interval.low)}, {signed(interval.high)}]"


def signed(value: float) -> str:
    """Return a number with its sign and two decimals; one that rounds to zero has none.

    >>> signed(-1.257), signed(0.001)
    ('−1.26', '0.00')
    """
    if math.isnan(value):
        return UNDEFINED
    text = f"{abs(value):.2f}"
    if float(text) == 0:
        return text
    return ("−" if value < 0 else "+") + text


def paper_text(score: Score) -> str:
    """Return the paper's number as it prints it."""
    if score.paper is None:
        return UNDEFINED
    spread = math.nan if score.paper.spread is None else score.paper.spread
    return score_text(Spread(score.paper.mean, spread, 1))


def state_text(run: Trace) -> str:
    """Return how far a run is, and why it is no further."""
    return f"{run.state}: {run.message}" if run.message else str(run.state)


def _spread(spread: Spread, decimals: int) -> str:
    if math.isnan(spread.mean):
        return UNDEFINED
    margin = "" if math.isnan(spread.deviation) else f" ± {spread.deviation:.{decimals}f}"
    return f"{spread.mean:.{decimals}f}{margin}"


def _count(spread: Spread) -> str:
    return UNDEFINED if math.isnan(spread.mean) else f"{spread.mean:,.0f}"


def _minutes(entry: Entry) -> str:
    return UNDEFINED if entry.minutes is None else f"{entry.minutes:,.0f}"


def _rate(entry: Entry) -> str:
    seconds = entry.seconds.mean
    return f"{entry.images.mean / seconds:,.0f}" if seconds > 0 else UNDEFINED


def _axes(table: GridTable) -> tuple[str, ...]:
    return (table.grid.rows, *table.axes)


def _place(entry: Entry, score: Score) -> tuple[str, ...]:
    return (entry.row, *entry.column, metric_title(score.metric))


def _flat(entries: Sequence[Entry]) -> list[tuple[Entry, Score]]:
    return [(entry, score) for entry in entries for score in entry.scores]


def _scores(table: GridTable) -> list[tuple[Entry, Score]]:
    return _flat(table.entries)
