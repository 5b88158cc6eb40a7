"""A grid's table laid out: overview, every number, differences, cost, runs, and notes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fedbb._util.table import UNDEFINED, Table, make_table
from fedbb._util.text import counted
from fedbb.report.labels import capitalize, metric_title, spread_text
from fedbb.report.prose import difference_text, signed
from fedbb.report.statistics import Spread
from fedbb.report.sweep.score_table import Entry, GridTable, Score, Trace
from fedbb.runs.sweep import State

ROUNDS = {"best": "best round", "final": "last round"}
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
    head = (table.grid.rows, *what, *_heads(table, keys))
    return make_table(head, lines, _caption(table), words=1 + table.has_paper)


def numbers(table: GridTable) -> Table:
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


def gaps(table: GridTable) -> Table:
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


def costs(table: GridTable) -> Table:
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


def runs(table: GridTable) -> Table:
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


def notes(table: GridTable) -> list[str]:
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


def _place(entry: Entry, score: Score) -> tuple[str, ...]:
    return (entry.row, *entry.column, metric_title(score.metric))


def _scores(table: GridTable) -> list[tuple[Entry, Score]]:
    return [(entry, score) for entry in table.entries for score in entry.scores]
