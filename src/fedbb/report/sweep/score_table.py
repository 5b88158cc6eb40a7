"""A grid's table: scores over seeds, differences, cost, the paper's numbers, the runs behind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedbb.paper.tables import Printed
from fedbb.recipes.grid.grid import Grid
from fedbb.recipes.spec import Recipe
from fedbb.report.groups import CONTROL, baselines_of, settings_of
from fedbb.report.results import RunResult, score_on_test, summary_of
from fedbb.report.statistics import PairedDifference, Spread, paired_difference, spread_of
from fedbb.report.sweep.cell_runs import CellRun, finished_run
from fedbb.runs.sweep import State

NO_CELL = "not in this grid"
NOT_RUN = "not run"
MINUTES = "minutes"
"""A printed number of this metric is a time, and goes with the cost."""
Measure = Callable[[RunResult], float]


@dataclass(frozen=True, eq=False)
class Place:
    """Where a row meets a column: a label on every axis, and a run for each seed."""

    row: str
    column: tuple[str, ...]
    at: Mapping[str, str]
    found: tuple[CellRun, ...]

    @property
    def finished(self) -> tuple[CellRun, ...]:
        """The runs that are whole."""
        return tuple(found for found in self.found if found.state is State.FINISHED)

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of the first seed; None where the grid has no cell."""
        return self.found[0].cell.recipe if self.found else None

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """All settings of its recipe but method and seed; none where the grid has no cell."""
        return {} if self.recipe is None else settings_of(self.recipe)


@dataclass(frozen=True)
class Gap:
    """A score minus that of a baseline on the same seeds."""

    against: str
    is_control: bool
    paired: PairedDifference


@dataclass(frozen=True)
class Ours:
    """Our test score over seeds by one choice of the round, and its gaps to the baselines."""

    spread: Spread
    gaps: tuple[Gap, ...]


@dataclass(frozen=True)
class Score:
    """One metric at one place, in points of which 100 are perfect.

    `best` is of the round each run chose as its best, `final` of the last; the paper's number is
    None where it prints none.
    """

    metric: str
    paper: Printed | None
    best: Ours
    final: Ours

    def ours(self, chosen: str) -> Ours:
        """Return our score by the choice "best" or "final"."""
        return self.best if chosen == "best" else self.final

    def difference(self, chosen: str) -> float:
        """Return our mean minus the paper's; NaN where either is missing."""
        return math.nan if self.paper is None else self.ours(chosen).spread.mean - self.paper.mean


@dataclass(frozen=True)
class Trace:
    """One run behind a place: its folder, how far it is, and its own scores in points.

    `scores` gives (best, final) by metric; `sha256` is that of its final model.
    """

    folder: str
    seed: int
    state: State
    message: str
    sha256: str | None = None
    best_round: int | None = None
    chosen_on: str | None = None
    scores: Mapping[str, tuple[float, float]] | None = None


@dataclass(frozen=True)
class Entry:
    """All results at one place of the table; seconds and images are of one run.

    `minutes` are those the paper prints for it.
    """

    row: str
    column: tuple[str, ...]
    at: Mapping[str, str]
    status: str
    finished: int
    wanted: int
    scores: tuple[Score, ...]
    seconds: Spread
    images: Spread
    minutes: float | None
    runs: tuple[Trace, ...]

    @property
    def title(self) -> str:
        """The labels in words, row first."""
        return ", ".join((self.row, *self.column))


@dataclass(frozen=True)
class GridTable:
    """A grid with its entries, row by row; `unplaced` are printed numbers without a place."""

    grid: Grid
    axes: tuple[str, ...]
    metrics: tuple[str, ...]
    entries: tuple[Entry, ...]
    unplaced: tuple[Printed, ...]

    @property
    def has_paper(self) -> bool:
        """Whether the paper prints any of these numbers."""
        return any(score.paper for entry in self.entries for score in entry.scores)


def table_of(grid: Grid, printed: Sequence[Printed], runs: Sequence[CellRun]) -> GridTable:
    """Return the table of a grid from what its run folders hold."""
    places = places_of(grid, runs)
    by_place = [_printed_at(place, grid, printed) for place in places]
    others = (number.metric for number in printed if number.metric != MINUTES)
    metrics = tuple(dict.fromkeys((*grid.metrics, *others)))
    entries = [
        _entry(place, places, grid, {number.metric: number for number in numbers}, metrics)
        for place, numbers in zip(places, by_place, strict=True)
    ]
    placed = [number for numbers in by_place for number in numbers]
    unplaced = tuple(number for number in printed if number not in placed)
    return GridTable(grid, column_axes(grid), metrics, tuple(entries), unplaced)


def column_axes(grid: Grid) -> tuple[str, ...]:
    """Return the axes that make columns: those the grid names, then any it leaves over."""
    others = (axis for axis in grid.axes if axis != grid.rows and axis not in grid.columns)
    return (*grid.columns, *others)


def places_of(grid: Grid, runs: Sequence[CellRun]) -> list[Place]:
    """Return the places column by column of each row, also those without any cell."""
    axes = column_axes(grid)
    columns = list(itertools.product(*(grid.axes[axis] for axis in axes)))
    by_labels: dict[frozenset[tuple[str, str]], list[CellRun]] = {}
    for found in runs:
        by_labels.setdefault(frozenset(found.cell.at.items()), []).append(found)
    places = []
    for row, column in itertools.product(grid.axes[grid.rows], columns):
        at = {grid.rows: row, **dict(zip(axes, column, strict=True))}
        seeds = by_labels.get(frozenset(at.items()), [])
        ordered = sorted(seeds, key=lambda found: found.cell.seed)
        places.append(Place(row, column, at, tuple(ordered)))
    return places


def rivals_of(place: Place, places: Sequence[Place]) -> list[tuple[str, Place]]:
    """Return FedAvg and the control where they differ from a place in nothing but the method.

    Of several, as in a grid of hyper-parameters, the one with most options and labels in common.
    """
    if place.recipe is None:
        return []
    found = []
    for name in baselines_of(place.recipe.method.name):
        alike = [other for other in places if _is_alike(other, place, name)]
        if alike:
            found.append((name, max(alike, key=lambda other: _kinship(place, other))))
    return found


def _is_alike(other: Place, place: Place, method: str) -> bool:
    if other.recipe is None or other.recipe.method.name != method:
        return False
    return other.settings == place.settings


def _kinship(place: Place, other: Place) -> tuple[int, int]:
    assert place.recipe is not None
    assert other.recipe is not None
    options = _shared(place.recipe.method.options, other.recipe.method.options)
    return options, _shared(place.at, other.at)


def _shared(first: Mapping[str, Any], second: Mapping[str, Any]) -> int:
    return sum(key in second and second[key] == value for key, value in first.items())


def _printed_at(place: Place, grid: Grid, printed: Iterable[Printed]) -> list[Printed]:
    """Return the numbers printed for a place.

    An axis with one label need not be named; a time may leave out any that it does not depend on.
    """
    named = {axis: label for axis, label in place.at.items() if len(grid.axes[axis]) > 1}
    return [
        number
        for number in printed
        if dict(number.at).items() <= dict(place.at).items()
        and (number.metric == MINUTES or named.items() <= dict(number.at).items())
    ]


def _entry(
    place: Place,
    places: Sequence[Place],
    grid: Grid,
    printed: Mapping[str, Printed],
    metrics: Sequence[str],
) -> Entry:
    runs = [finished_run(found) for found in place.finished]
    rivals = rivals_of(place, places)
    return Entry(
        row=place.row,
        column=place.column,
        at=place.at,
        status=_status(place, grid),
        finished=len(runs),
        wanted=len(place.found),
        scores=tuple(_score(place, rivals, metric, printed.get(metric)) for metric in metrics),
        seconds=spread_of(run.seconds for run in runs),
        images=spread_of(found.images for found in place.finished),
        minutes=printed[MINUTES].mean if MINUTES in printed else None,
        runs=tuple(_trace(found, metrics) for found in place.found),
    )


def _score(
    place: Place, rivals: Sequence[tuple[str, Place]], metric: str, paper: Printed | None
) -> Score:
    def best(run: RunResult) -> float:
        return 100 * score_on_test(summary_of(run).best, metric)

    def final(run: RunResult) -> float:
        return 100 * score_on_test(summary_of(run).final, metric)

    return Score(metric, paper, _ours(place, rivals, best), _ours(place, rivals, final))


def _ours(place: Place, rivals: Sequence[tuple[str, Place]], measure: Measure) -> Ours:
    own = _by_seed(place, measure)
    gaps = tuple(_gap(own, name, rival, measure) for name, rival in rivals)
    return Ours(spread_of(own.values()), gaps)


def _gap(own: Mapping[int, float], name: str, rival: Place, measure: Measure) -> Gap:
    return Gap(rival.row, name == CONTROL, paired_difference(own, _by_seed(rival, measure)))


def _by_seed(place: Place, measure: Measure) -> dict[int, float]:
    return {found.cell.seed: measure(finished_run(found)) for found in place.finished}


def _status(place: Place, grid: Grid) -> str:
    """Return how many seeds of a place are finished, and if none, why."""
    if not place.found:
        why = grid.skipped.get(frozenset(place.at.items()))
        return NO_CELL if why is None else f"left out: {why}"
    if place.finished:
        return _seeds(len(place.finished), len(place.found))
    for state in (State.FAILED, State.UNFINISHED):
        for found in place.found:
            if found.state is state:
                return f"{state}: {found.message}"
    return NOT_RUN


def _seeds(finished: int, wanted: int) -> str:
    if finished < wanted:
        return f"{finished} of {wanted} seeds"
    return "1 seed" if wanted == 1 else f"{wanted} seeds"


def _trace(found: CellRun, metrics: Sequence[str]) -> Trace:
    name, seed = found.cell.name, found.cell.seed
    if found.state is not State.FINISHED:
        return Trace(name, seed, found.state, found.message)
    summary = summary_of(finished_run(found))
    scores = {
        metric: (
            100 * score_on_test(summary.best, metric),
            100 * score_on_test(summary.final, metric),
        )
        for metric in metrics
    }
    return Trace(
        *(name, seed, found.state, found.message),
        sha256=summary.sha256,
        best_round=summary.best.number,
        chosen_on=summary.chosen_on,
        scores=scores,
    )
