"""A grid's table: scores over seeds, differences, cost, the paper's numbers, the runs behind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedbb.errors import RunError
from fedbb.paper.tables import Printed
from fedbb.recipes.grid import Cell, Grid
from fedbb.recipes.reader import differences
from fedbb.recipes.spec import Recipe
from fedbb.report.groups import CONTROL, baselines_of, settings_of
from fedbb.report.results import RunResult, ScoredRound, read_run, score_on_test, summary_of
from fedbb.report.statistics import PairedDifference, Spread, paired_difference, spread_of
from fedbb.runs.folder import Record, RunFolder
from fedbb.runs.sweep import State, read_failure
from fedbb.training.config import LocalConfig

LARGEST = 2**40
"""More samples or seconds than any run has, and few enough to be added without loss."""


NO_CELL = "not in this grid"
NOT_RUN = "not run"
MINUTES = "minutes"
"""A printed number of this metric is a time, and goes with the cost."""

Measure = Callable[[RunResult], float]


@dataclass(frozen=True, eq=False)
class CellRun:
    """A cell with its run, if there is one, or with the reason why there is none.

    `images` counts the training images that its clients processed.
    """

    cell: Cell
    state: State
    message: str = ""
    run: RunResult | None = None
    images: int = 0


def read_cells(grid: Grid, runs_folder: Path) -> list[CellRun]:
    """Return the run of every cell; a folder that cannot be used becomes a message."""
    return [_read_cell(cell, runs_folder / cell.name) for cell in grid.cells]


def finished_run(found: CellRun) -> RunResult:
    """Return the run of a cell that is known to be finished."""
    assert found.run is not None
    return found.run


def count_images(run: RunResult, records: list[Record]) -> int:
    """Return how many training images the clients of these rounds processed, over all epochs.

    Clients of unknown size are assumed to hold equal parts.
    """
    federation = run.federation
    if federation.hidden:
        took_part = sum(len(record["clients"]) for record in records)
        return run.recipe.local.epochs * took_part * federation.train // len(federation.clients)
    per_epoch = {
        client.client: _whole_batches(client.samples, run.recipe.local)
        for client in federation.known
    }
    known = [int(client["client"]) for record in records for client in record["clients"]]
    return run.recipe.local.epochs * sum(per_epoch[client] for client in known)


def _read_cell(cell: Cell, path: Path) -> CellRun:
    failure = _failure(path)
    try:
        if RunFolder(path).is_run():
            return _read_run(cell, path, failure)
    except (RunError, OSError, RecursionError) as error:
        return CellRun(cell, State.FAILED, _without_folder(str(error), path))
    return CellRun(cell, State.FAILED, failure) if failure else CellRun(cell, State.WAITING)


def _read_run(cell: Cell, path: Path, failure: str | None) -> CellRun:
    run, records = read_run(path), RunFolder(path).records()
    same_name = run.recipe.decisive.model_copy(update={"name": cell.recipe.name})
    changed = differences(same_name, cell.recipe.decisive)
    if changed:
        return CellRun(cell, State.FAILED, f"holds a run of another recipe ({changed[0]})")
    try:
        _check_numbers(run)
        images = count_images(run, records)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError(f"it is damaged: {type(error).__name__}: {error}") from error
    if run.summary is not None:
        return CellRun(cell, State.FINISHED, "", run, images)
    if failure:
        return CellRun(cell, State.FAILED, failure, run, images)
    progress = f"{len(run.rounds)} of {cell.recipe.rounds.number} rounds"
    return CellRun(cell, State.UNFINISHED, progress, run, images)


def _check_numbers(run: RunResult) -> None:
    """Reject numbers that JSON files can hold but no run writes, such as infinity."""
    ends = [] if run.summary is None else [run.summary.best, run.summary.final]
    for scored in (*run.rounds, *ends):
        if not (_are_shares(scored) and 0 <= scored.seconds <= LARGEST):
            raise RunError(f"round {scored.number} holds a number out of range")
    if not run.federation.clients:
        raise RunError("federation.json names no client")
    for client in run.federation.known:
        weights = (client.weight, client.weight_by_samples, client.dispersion or 0.0)
        counts = (client.samples, *client.positives, *run.federation.class_counts)
        if not all(0 <= number <= LARGEST for number in (*weights, *counts)):
            raise RunError(f"client {client.client} holds a number out of range")


def _are_shares(scored: ScoredRound) -> bool:
    """Return whether all scores are undefined or from 0 to 1, and one for each class."""
    for scores in scored.scores.values():
        for values in (list(scores.macro.values()), *scores.per_class.values()):
            array = np.asarray(values, dtype=np.float64)
            if array.ndim != 1 or (array < 0).any() or (array > 1).any():
                return False
    return True


def _failure(path: Path) -> str | None:
    message = read_failure(path)
    return None if message is None else _without_folder(message, path)


def _without_folder(message: str, path: Path) -> str:
    """Remove absolute paths, so that a table does not depend on the place of its runs."""
    return message.replace(f"{path}/", "").replace(str(path), path.name)


def _whole_batches(samples: int, local: LocalConfig) -> int:
    """Return the images of one epoch; a short last batch may be dropped unless it is the only."""
    if local.drop_last and samples > local.batch_size:
        return samples - samples % local.batch_size
    return samples


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
