"""What the rest of a grid will cost, from rounds it has behind it or a measurement here."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbb.errors import FedbbError
from fedbb.recipes.grid.grid import Cell, Grid
from fedbb.recipes.spec import Recipe
from fedbb.runs.federation import Federation, prepare
from fedbb.runs.pace import Pace, measure_pace
from fedbb.runs.sweep import CellStatus, State, statuses

Progress = Callable[[int, int], None]
"""Hears how many of how many measurements are done."""


@dataclass(frozen=True)
class Estimate:
    """What unfinished cells still ask for, by name: seconds of a round, and rounds left.

    `unknown` tells why some have no seconds.
    """

    per_round: Mapping[str, float]
    left: Mapping[str, int]
    unknown: Mapping[str, str]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that each cell still takes by itself."""
        return {name: self.left[name] * taken for name, taken in self.per_round.items()}

    def wall(self, workers: int) -> float:
        """Return the seconds until all are finished, so many at a time, the longest first."""
        return wall_time(self.seconds.values(), workers)


def estimate(grid: Grid, out: Path, progress: Progress | None = None) -> Estimate:
    """Return what the unfinished cells of a grid cost on this machine.

    Rounds of a cell, or of one that differs in nothing but seed and length, are the best evidence;
    where there are none, a second of training is measured for each kind of cell.
    """
    found = statuses(grid, out)
    missing = [cell for cell in grid.cells if found[cell.name].state is not State.FINISHED]
    known = _evidence(grid.cells, found)
    wanted = {kind_of(cell.recipe): cell.recipe for cell in missing}
    new = {kind: recipe for kind, recipe in wanted.items() if kind not in known}
    measured, unknown = _measure(new, progress)
    known |= measured
    told = {cell.name: kind_of(cell.recipe) for cell in missing}
    return Estimate(
        per_round={name: known[kind] for name, kind in told.items() if kind in known},
        left={name: found[name].of - found[name].rounds for name in told},
        unknown={name: unknown[kind] for name, kind in told.items() if kind in unknown},
    )


def _evidence(cells: Sequence[Cell], found: Mapping[str, CellStatus]) -> dict[str, float]:
    """Return the mean seconds of a round for every kind of cell that has some behind it."""
    rounds: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for cell in cells:
        status, kind = found[cell.name], kind_of(cell.recipe)
        if status.rounds:
            rounds[kind] = rounds.get(kind, 0) + status.rounds
            seconds[kind] = seconds.get(kind, 0.0) + status.seconds
    return {kind: seconds[kind] / number for kind, number in rounds.items()}


def _measure(
    recipes: Mapping[str, Recipe], progress: Progress | None
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the seconds of a round for each kind of recipe, and why some cannot be told."""
    measured: dict[str, float] = {}
    unknown: dict[str, str] = {}
    meter = Meter()
    # Recipes with the same images come after each other, for only one data set is kept loaded.
    for number, kind in enumerate(sorted(recipes, key=lambda kind: data_of(recipes[kind]))):
        if progress is not None:
            progress(number, len(recipes))
        try:
            measured[kind] = meter.round_of(recipes[kind])
        except FedbbError as error:
            unknown[kind] = str(error)
    return measured, unknown


def wall_time(seconds: Iterable[float], workers: int) -> float:
    """Return when the last of these pieces of work ends, the longest begun first.

    >>> wall_time([5.0, 3.0, 3.0, 1.0], 2)
    6.0
    """
    ends = [0.0] * workers
    for piece in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + piece)
    return max(ends)


def kind_of(recipe: Recipe) -> str:
    """Return what all cells share whose rounds take equally long."""
    return recipe.decisive.model_dump_json(
        exclude={"name": True, "seed": True, "rounds": {"number": True}}
    )


def data_of(recipe: Recipe) -> str:
    """Return what recipes share that load the same images."""
    return recipe.data.model_dump_json(exclude={"partition"})


class Meter:
    """Measures recipes, and keeps for the next one what it has loaded and measured already."""

    def __init__(self) -> None:
        self.data = ""
        self.federation: Federation | None = None
        self.paces: dict[str, Pace] = {}

    def round_of(self, recipe: Recipe) -> float:
        """Return the seconds that a round of this recipe takes."""
        federation = self._load(recipe)
        pace = self._pace(recipe, federation)
        images = len(federation.dataset.train) * recipe.rounds.participation * recipe.local.epochs
        scored = sum(len(examples) for examples in federation.scored.values())
        return images * pace.train + scored * pace.score

    def _load(self, recipe: Recipe) -> Federation:
        if self.federation is None or self.data != data_of(recipe):
            self.federation = None
            self.federation, self.data = prepare(recipe), data_of(recipe)
        return self.federation

    def _pace(self, recipe: Recipe, federation: Federation) -> Pace:
        local = recipe.local.model_dump_json(exclude={"epochs", "lr", "momentum", "weight_decay"})
        parts = [data_of(recipe), recipe.model.model_dump_json(), recipe.method.name, local]
        key = " ".join(parts)
        if key not in self.paces:
            self.paces[key] = measure_pace(recipe, federation)
        return self.paces[key]
