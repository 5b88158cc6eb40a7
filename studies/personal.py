"""Accuracy of each client: shared model, fine-tuned model, local training, central training."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from fedbb.recipes.grid import Cell, read_grid
from fedbb.runs.personal import ClientAccuracies, personalize
from studies.collect import write_rows
from studies.stored import GRIDS, RESULTS, Row, read_rows
from studies.tables import compare, markdown, score_text

FILE = "personal.csv"
METHODS = ("FedAvg", "FedAvg-scaled (control)", "FedBB", "FedBB-plus")
PAIRS = (
    ("FedBB", "FedAvg"),
    ("FedBB", METHODS[1]),
    (METHODS[1], "FedAvg"),
    ("FedBB-plus", "FedAvg"),
)
DATA = {"δ = 0.1": "CIFAR-10", "LT, δ = 0.5": "LT-CIFAR-10"}
"""Columns of natural-images.toml, and the row of ceiling.toml that has the same images."""

MODELS = {
    "shared": "shared model",
    "adapted": "fine-tuned for one epoch",
    "alone": "local only",
    "ceiling": "central",
}


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is not stored yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="where the cells of natural-images lie")
    parser.add_argument("ceilings", type=Path, help="where the cells of ceiling lie")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    path = options.results / FILE
    rows = read_rows(path)
    for cell in wanted():
        if any(row["cell"] == cell.name for row in rows):
            continue
        ceiling = options.ceilings / _central(cell).name
        if not all((run / "summary.json").exists() for run in (options.runs / cell.name, ceiling)):
            print(f"{cell.title}: its run or the central one is not finished")
            continue
        served = personalize(
            options.runs / cell.name, alone=not _lonely(rows, cell), ceiling=ceiling
        )
        rows += _rows(cell, _with_known(served, _lonely(rows, cell)))
        write_rows(path, rows)
        print(f"{cell.title}: stored")


def wanted() -> list[Cell]:
    """Return the cells that are looked at."""
    cells = read_grid(GRIDS / "natural-images.toml").cells
    return [c for c in cells if c.at["data"] in DATA and c.at["method"] in METHODS]


def table(rows: Sequence[Row], number: str = "8a") -> str:
    """Return mean and worst client of each model, and differences between means, over seeds."""
    lines = []
    places = [(data, method) for data in DATA for method in METHODS]
    for place, (data, method) in enumerate(places, start=1):
        cells = []
        for model in MODELS:
            means, worst = (_by_seed(rows, data, method, model, of) for of in (fmean, min))
            cells.append(f"{score_text(means, len(means))}; {score_text(worst, len(worst))}")
        lines.append([f"{number}.{place}", data, method, *cells])
    scores = markdown(["row", "data", "method", *MODELS.values()], lines, words=3)
    return f"{scores}\n\n{_differences(rows)}"


def _differences(rows: Sequence[Row]) -> str:
    """Return the mean over clients of one method less another's, paired by seed."""
    models = ("shared", "adapted")
    head = [f"{MODELS[model]}, {data}" for model in models for data in DATA]
    lines = []
    for one, other in PAIRS:
        scores = [
            [_by_seed(rows, data, method, model, fmean) for method in (one, other)]
            for model in models
            for data in DATA
        ]
        lines.append([f"{one} − {other}", *(compare(own, base) for own, base in scores)])
    return markdown(["difference", *head], lines)


def _by_seed(
    rows: Sequence[Row], data: str, method: str, model: str, of: Callable[[list[float]], float]
) -> dict[int, float]:
    """Return the mean, or the least, over a method's clients, for each seed."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if (row["data"], row["method"]) == (data, method):
            found.setdefault(int(row["seed"]), []).append(float(row[model]))
    return {seed: of(scores) for seed, scores in sorted(found.items())}


def _central(cell: Cell) -> Cell:
    row = DATA[cell.at["data"]]
    cells = read_grid(GRIDS / "ceiling.toml", seeds=[cell.seed]).cells
    return next(central for central in cells if central.at["data"] == row)


def _lonely(rows: Sequence[Row], cell: Cell) -> list[Row]:
    """Return the stored clients of another method: trained alone, they do not depend on it."""
    same = [r for r in rows if (r["data"], int(r["seed"])) == (cell.at["data"], cell.seed)]
    return [row for row in same if row["method"] == same[0]["method"]]


def _with_known(
    served: Sequence[ClientAccuracies], lonely: Sequence[Row]
) -> list[ClientAccuracies]:
    if not lonely:
        return list(served)
    return [
        replace(one, alone=float(row["alone"])) for one, row in zip(served, lonely, strict=True)
    ]


def _rows(cell: Cell, served: Sequence[ClientAccuracies]) -> Iterator[Row]:
    for one in served:
        scores = {model: round(getattr(one, model), 5) for model in MODELS}
        held = {"client": one.client, "images": one.samples, "classes": one.classes}
        yield {"cell": cell.name, **cell.at, "seed": cell.seed, **held, **scores}


if __name__ == "__main__":
    main()
