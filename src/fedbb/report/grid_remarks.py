"""What a reader of a grid's table must know beside its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from fedbb.report.grid_layout import state_text
from fedbb.report.grid_runs import State
from fedbb.report.grid_scores import GridTable


def diagnostics(table: GridTable) -> list[str]:
    """Return notes of the scale, what is missing and why, rosy choices, and notes on the paper."""
    found = [*table.grid.notes, *_progress(table), *_left_out(table), *_trouble(table)]
    return list(dict.fromkeys([*found, *_rosy(table), *_of_paper(table)]))


def _progress(table: GridTable) -> Iterator[str]:
    states = [run.state for entry in table.entries for run in entry.runs]
    if not states:
        yield "This grid has no runs; it shows printed numbers only."
        return
    counts = {state: states.count(state) for state in State}
    told = [f"{number} {state}" for state, number in counts.items() if number]
    yield f"Of {len(states)} runs: {', '.join(told)}."


def _left_out(table: GridTable) -> Iterator[str]:
    for entry in table.entries:
        if not entry.runs and ":" in entry.status:
            yield f"{entry.title}: {entry.status.rstrip('.')}."


def _trouble(table: GridTable) -> Iterator[str]:
    for entry in table.entries:
        for run in entry.runs:
            if run.message:
                yield f"{entry.title}, seed {run.seed}: {state_text(run).rstrip('.')}."


def _rosy(table: GridTable) -> Iterator[str]:
    chosen = [run.chosen_on for entry in table.entries for run in entry.runs if run.chosen_on]
    number = chosen.count("test")
    if number:
        which = "every run" if number == len(chosen) else f"{number} of {len(chosen)} runs"
        yield f"The best round of {which} was chosen on test data, so its score is too rosy."


def _of_paper(table: GridTable) -> Iterator[str]:
    for entry in table.entries:
        for score in entry.scores:
            if score.paper is not None and score.paper.note:
                yield f"{entry.title}, as printed: {score.paper.note}"
    if table.unplaced:
        number = len(table.unplaced)
        yield f"{number} printed number{'s' if number > 1 else ''} without a place in this grid."
