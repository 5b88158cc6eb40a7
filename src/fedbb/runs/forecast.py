"""The time a grid still takes, told anew after every round."""

from __future__ import annotations

from fedbb.recipes.grid.grid import Cell, Grid
from fedbb.runs.cost_estimate import Estimate, kind_of, wall_time
from fedbb.runs.scheduler import ENDINGS, EventKind, RunEvent


class Forecast:
    """Starts from an estimate; rounds that are heard of tell better what others of their kind take.

    Cells whose cost cannot be told count for nothing until one of them has told it.
    """

    def __init__(self, grid: Grid, estimate: Estimate, workers: int) -> None:
        self.workers = workers
        self.left = dict(estimate.left)
        self.kinds = {cell.name: kind_of(cell.recipe) for cell in grid.cells}
        self.guessed = {self.kinds[name]: seconds for name, seconds in estimate.per_round.items()}
        self.heard: dict[str, list[float]] = {}

    def hear(self, cell: Cell, news: RunEvent) -> None:
        """Take account of what happened to a cell."""
        if news.kind is EventKind.ROUND:
            self.left[cell.name] = cell.recipe.rounds.number - news.round
            self.heard.setdefault(self.kinds[cell.name], []).append(news.seconds)
        elif news.kind in ENDINGS:
            self.left.pop(cell.name, None)

    def seconds(self) -> float:
        """Return the seconds until all cells are finished."""
        pieces = (rounds * self._round(self.kinds[name]) for name, rounds in self.left.items())
        return wall_time(pieces, self.workers)

    def _round(self, kind: str) -> float:
        heard = self.heard.get(kind)
        return sum(heard) / len(heard) if heard else self.guessed.get(kind, 0.0)
