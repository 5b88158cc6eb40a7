"""What a threshold does for the X-ray models: one half, as common as the finding, or chosen."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.evaluation.metrics import score_multilabel
from fedbb.evaluation.scorer import Scorer
from fedbb.imbalance.counts import count_labels
from fedbb.methods import build_method
from fedbb.recipes.grid import read_grid
from fedbb.recipes.spec import Recipe
from fedbb.records import FloatArray
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.prepare import prepare
from fedbb.runs.workshop import network_of
from fedbb.state import restore
from fedbb.training.threads import threads
from studies.collect import write_rows
from studies.kept import GRIDS, RESULTS, Row, read_rows
from studies.tables import markdown, told

FILE = "thresholds.csv"
GRID = GRIDS / "own-rates-chest.toml"
RULES = {
    "half": "one half",
    "prevalence": "share of training cases",
    "chosen": "chosen on validation data",
}


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is not kept yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="where the cells of own-rates-chest lie")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    path = options.results / FILE
    rows = read_rows(path)
    for cell in read_grid(GRID).cells:
        if any(row["cell"] == cell.name for row in rows):
            continue
        if not (options.runs / cell.name / "summary.json").exists():
            print(f"{cell.title}: its run is not finished")
            continue
        scores = measure(cell.recipe, options.runs / cell.name)
        rounded = {rule: round(score, 5) for rule, score in scores.items()}
        rows.append({"cell": cell.name, **cell.at, "seed": cell.seed, **rounded})
        write_rows(path, rows)
        print(f"{cell.title}: kept")


def measure(recipe: Recipe, run: Path) -> dict[str, float]:
    """Return the balanced accuracy of a finished multi-label run on test data, by each rule."""
    with threads(1):
        federation = prepare(recipe)
        data = federation.dataset
        method = build_method(recipe.method.name, recipe.method.options)
        model = network_of(recipe, data, method, 0)
        restore(model, load_checkpoint(run / "final.safetensors").state)
        scorer = Scorer(model, data, federation.scored, recipe.evaluation.batch_size)
        logits = {n: scorer.predict(part, 0, len(part)) for n, part in federation.scored.items()}
    labels = {name: part.labels for name, part in federation.scored.items()}
    counts = count_labels(data.train.labels, data.task, len(data.classes))
    prevalence = np.log(counts.positive / counts.negative)
    limits = {
        "half": np.zeros_like(prevalence),
        "prevalence": prevalence,
        "chosen": choose(logits["validation"], labels["validation"], prevalence),
    }
    return {
        rule: score_multilabel(logits["test"] - limit, labels["test"]).macro["balanced_accuracy"]
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
    """Return mean ± deviation over seeds, a line for each method and a column for each rule."""
    grid = read_grid(GRID)
    seeds = len({cell.seed for cell in grid.cells})
    places = [(skew, method) for skew in grid.axes["skew"] for method in grid.axes["method"]]
    lines = []
    for place, (skew, method) in enumerate(places, start=1):
        own = [row for row in rows if (row["skew"], row["method"]) == (skew, method)]
        scores = [{int(row["seed"]): float(row[rule]) for row in own} for rule in RULES]
        cells = [told(by_seed, seeds) for by_seed in scores]
        lines.append([f"{number}.{place}", skew, method, *cells])
    return markdown(["row", "data", "method", *RULES.values()], lines)


if __name__ == "__main__":
    main()
