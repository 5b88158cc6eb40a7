"""X-ray models at three thresholds: one half, the prevalence, or chosen on validation data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.evaluation.metrics import score_multilabel
from fedbb.imbalance import count_labels
from fedbb.recipes.grid import Cell, read_grid
from fedbb.recipes.spec import Recipe
from fedbb.records import FloatArray
from studies.rescore import differences, look, measure_new, tabulate
from studies.stored import GRIDS, Row

FILE = "thresholds.csv"
RULES = {
    "half": "one half",
    "prevalence": "prevalence",
    "chosen": "chosen on validation data",
}
PAIRS = (
    (("FedAvg", "prevalence"), ("FedAvg", "half")),
    (("FedAvg", "prevalence"), ("FedBB", "half")),
    (("FedAvg", "chosen"), ("FedBB", "chosen")),
)


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is not stored yet."""
    measure_new(wanted(), FILE, measure, words)


def wanted() -> tuple[Cell, ...]:
    """Return the cells that are looked at."""
    return read_grid(GRIDS / "own-rates-chest.toml").cells


def measure(recipe: Recipe, run: Path) -> dict[str, float]:
    """Return the balanced accuracy of a finished multi-label run on test data, by each rule."""
    federation, logits = look(recipe, run)
    data, scored = federation.dataset, federation.scored
    counts = count_labels(data.train.labels, data.task, len(data.classes))
    prevalence = np.log(counts.positive / counts.negative)
    limits = {
        "half": np.zeros_like(prevalence),
        "prevalence": prevalence,
        "chosen": choose(logits["validation"], scored["validation"].labels, prevalence),
    }
    return {
        rule: score_multilabel(logits["test"] - limit, scored["test"].labels).macro[
            "balanced_accuracy"
        ]
        for rule, limit in limits.items()
    }


def choose(logits: FloatArray, labels: npt.NDArray[Any], otherwise: FloatArray) -> FloatArray:
    """Return for each class the logit above which saying yes is most often right, in balance.

    Of equals the lowest. A class without cases, or without any against it, has no such logit and
    takes the other one.
    """
    return np.array(
        [
            _best(logits[:, place], labels[:, place] > 0, other)
            for place, other in enumerate(otherwise)
        ]
    )


def _best(logits: FloatArray, positive: npt.NDArray[np.bool_], other: float) -> float:
    if positive.all() or not positive.any():
        return other
    ends = np.unique(logits)
    limits = np.concatenate([[ends[0] - 1.0], (ends[1:] + ends[:-1]) / 2, [ends[-1] + 1.0]])
    said = logits[:, None] > limits
    right = said[positive].mean(axis=0) - said[~positive].mean(axis=0)
    return float(limits[np.argmax(right)])


def table(rows: Sequence[Row], number: str = "6g") -> str:
    """Return the balanced accuracies by each rule, and paired differences."""
    scores = tabulate(rows, wanted(), number, RULES)
    return f"{scores}\n\n{differences(rows, wanted(), RULES, PAIRS)}"


if __name__ == "__main__":
    main()
