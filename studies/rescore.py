"""Final models of finished cells, scored again by other rules than those of the runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedbb.evaluation.metrics import Scorer
from fedbb.methods import build_method
from fedbb.recipes.grid import Cell
from fedbb.recipes.spec import Recipe
from fedbb.records import FloatArray
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.federation import Federation, prepare
from fedbb.runs.runtime import network_of
from fedbb.state import restore
from fedbb.training.threads import threads
from studies.collect import write_rows
from studies.stored import RESULTS, Row, read_rows
from studies.tables import compare, markdown, score_text

Scored = tuple[str, str]
"""A method, and a column of its scores."""
Measure = Callable[[Recipe, Path], dict[str, float]]


def look(recipe: Recipe, run: Path) -> tuple[Federation, dict[str, FloatArray]]:
    """Return a run's data and its final model's logits (N, C) on each set that rounds score."""
    with threads(1):
        federation = prepare(recipe)
        method = build_method(recipe.method.name, recipe.method.options)
        model = network_of(recipe, method, federation.dataset)
        restore(model, load_checkpoint(run / "final.safetensors").state)
        scored = federation.scored
        scorer = Scorer(model, federation.dataset, scored, recipe.evaluation.batch_size)
        return federation, {n: scorer.predict(part, 0, len(part)) for n, part in scored.items()}


def measure_new(
    cells: Iterable[Cell], file: str, measure: Measure, words: Sequence[str] | None
) -> None:
    """Measure the finished cells that the file does not hold yet, as a command's words say."""
    parser = argparse.ArgumentParser(description=f"Measures what {file} does not hold yet.")
    parser.add_argument("runs", type=Path, help="where the cells of the grid lie")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    path = options.results / file
    rows = read_rows(path)
    for cell in cells:
        if any(row["cell"] == cell.name for row in rows):
            continue
        if not (options.runs / cell.name / "summary.json").exists():
            print(f"{cell.title}: its run is not finished")
            continue
        scores = measure(cell.recipe, options.runs / cell.name)
        rounded = {name: round(score, 5) for name, score in scores.items()}
        rows.append({"cell": cell.name, **cell.at, "seed": cell.seed, **rounded})
        write_rows(path, rows)
        print(f"{cell.title}: stored")


def tabulate(
    rows: Sequence[Row], cells: Sequence[Cell], number: str, columns: dict[str, str]
) -> str:
    """Return mean ± deviation over seeds, a line for each place in the grid, in its order."""
    places = list(dict.fromkeys(tuple(cell.at.items()) for cell in cells))
    seeds = len({cell.seed for cell in cells})
    lines = []
    for place, at in enumerate(places, start=1):
        own = [row for row in rows if all(row[axis] == label for axis, label in at)]
        by_column = [{int(row["seed"]): float(row[name]) for row in own} for name in columns]
        labels = [label for _, label in at]
        lines.append([f"{number}.{place}", *labels, *(score_text(v, seeds) for v in by_column)])
    head = ["row", *(axis for axis, _ in places[0]), *columns.values()]
    return markdown(head, lines, words=1 + len(places[0]))


def differences(
    rows: Sequence[Row],
    cells: Sequence[Cell],
    columns: dict[str, str],
    pairs: Sequence[tuple[Scored, Scored]],
) -> str:
    """Return one method and column minus another, paired by seed, for each other label."""
    (axis,) = (axis for axis in cells[0].at if axis != "method")
    labels = list(dict.fromkeys(cell.at[axis] for cell in cells))

    def by_seed(label: str, scored: Scored) -> dict[int, float]:
        method, column = scored
        found = [row for row in rows if (row[axis], row["method"]) == (label, method)]
        return {int(row["seed"]): float(row[column]) for row in found}

    lines = []
    for one, other in pairs:
        name = " − ".join(f"{method}, {columns[column]}" for method, column in (one, other))
        cells_of = [compare(by_seed(label, one), by_seed(label, other)) for label in labels]
        lines.append([name, *cells_of])
    return markdown(["difference", *labels], lines)
