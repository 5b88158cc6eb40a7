"""Post-hoc logit adjustment (Menon et al. 2021) of the long-tailed models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbb.evaluation.metrics import score_multiclass
from fedbb.imbalance import count_labels
from fedbb.recipes.grid import Cell, read_grid
from fedbb.recipes.spec import Recipe
from studies.rescore import differences, look, measure_new, tabulate
from studies.stored import GRIDS, Row

FILE = "logit-adjustment.csv"
METHODS = ("FedAvg", "FedLC", "FedBB", "FedBB-plus")
DATA = ("LT, δ = 0.1", "LT, δ = 0.5")
LOGITS = {"unadjusted": "unadjusted", "adjusted": "adjusted"}
PAIRS = (
    *(((method, "adjusted"), (method, "unadjusted")) for method in METHODS),
    (("FedAvg", "adjusted"), ("FedBB", "unadjusted")),
    (("FedAvg", "adjusted"), ("FedLC", "unadjusted")),
    (("FedBB", "adjusted"), ("FedAvg", "adjusted")),
)


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is not stored yet."""
    measure_new(wanted(), FILE, measure, words)


def wanted() -> tuple[Cell, ...]:
    """Return the cells that are looked at."""
    cells = read_grid(GRIDS / "natural-images.toml").cells
    return tuple(c for c in cells if c.at["data"] in DATA and c.at["method"] in METHODS)


def measure(recipe: Recipe, run: Path) -> dict[str, float]:
    """Return the test accuracy by a run's logits, and by these minus the log class prior."""
    federation, logits = look(recipe, run)
    data, test = federation.dataset, federation.scored["test"]
    cases = count_labels(data.train.labels, data.task, len(data.classes)).positive
    prior = np.log(cases / cases.sum())
    by = {"unadjusted": logits["test"], "adjusted": logits["test"] - prior}
    return {n: score_multiclass(v, test.labels).macro["accuracy"] for n, v in by.items()}


def table(rows: Sequence[Row], number: str = "1b") -> str:
    """Return the accuracies with and without adjustment, and paired differences."""
    scores = tabulate(rows, wanted(), number, LOGITS)
    return f"{scores}\n\n{differences(rows, wanted(), LOGITS, PAIRS)}"


if __name__ == "__main__":
    main()
