"""What the long-tailed models say if every class is taken for equally common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbb.evaluation.metrics import score_multiclass
from fedbb.imbalance.counts import count_labels
from fedbb.recipes.grid.grid import Cell, read_grid
from fedbb.recipes.spec import Recipe
from studies.final import look, measure_new, tabulate
from studies.kept import GRIDS, Row

FILE = "shifted.csv"
METHODS = ("FedAvg", "FedLC", "FedBB", "FedBB-plus")
DATA = ("LT, δ = 0.1", "LT, δ = 0.5")
LOGITS = {"plain": "as trained", "shifted": "less the logarithm of its share"}


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is not kept yet."""
    measure_new(wanted(), FILE, measure, words)


def wanted() -> tuple[Cell, ...]:
    """Return the cells that are looked at."""
    cells = read_grid(GRIDS / "natural-images.toml").cells
    return tuple(c for c in cells if c.at["data"] in DATA and c.at["method"] in METHODS)


def measure(recipe: Recipe, run: Path) -> dict[str, float]:
    """Return the test accuracy by a run's logits, and by these less ln of the class's share."""
    federation, logits = look(recipe, run)
    data, test = federation.dataset, federation.scored["test"]
    cases = count_labels(data.train.labels, data.task, len(data.classes)).positive
    shift = np.log(cases / cases.sum())
    by = {"plain": logits["test"], "shifted": logits["test"] - shift}
    return {n: score_multiclass(v, test.labels).macro["accuracy"] for n, v in by.items()}


def table(rows: Sequence[Row], number: str = "1b") -> str:
    """Return the accuracies, a line for each method and a column for each kind of logits."""
    return tabulate(rows, wanted(), number, LOGITS)


if __name__ == "__main__":
    main()
