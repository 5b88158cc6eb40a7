"""Classifiers in closed form on the final models of finished cells, scored beside the trained one.

The classifier changes nothing in the training, so that one run gives the scores of a method and of
the same method with each of these classifiers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedbb.classifiers.closed_form import ClosedForm
from fedbb.classifiers.head import Head, blend_heads, embed, read_head
from fedbb.classifiers.sums import EmbeddingSums, add_sums, sum_embeddings
from fedbb.data import Dataset, Examples
from fedbb.data.transforms import normalize
from fedbb.evaluation.metrics import score_logits
from fedbb.methods import build_method
from fedbb.models.base import linear_classifier
from fedbb.recipes.grid import Cell, Grid, read_grid
from fedbb.records import IntArray, Task
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.federation import prepare
from fedbb.runs.runtime import network_of
from fedbb.state import restore
from fedbb.training.threads import threads
from studies.collect import write_rows
from studies.stored import RESULTS, Row, read_rows
from studies.tables import compare, markdown, score_text

FILE = "heads.csv"
TRAINED = "as trained"
FORMS = {
    "LDA": ClosedForm(),
    "LDA, s = 0.3": ClosedForm(shrinkage=0.3),
    "LDA, s = 0.9": ClosedForm(shrinkage=0.9),
}
"""Linear discriminant analysis with the shrinkage that its rule gives, and with larger ones."""

SHARES = (0.5, 1.0)
BATCH = 250

SHOWN = {"accuracy": "Test accuracy", "worst class": "Recall of the worst class"}
MEASURES = {Task.MULTICLASS: ("accuracy", "recall"), Task.MULTILABEL: ("auroc", "auroc")}
"""The score of all classes, and the one whose smallest value is that of the worst class."""


def main(words: Sequence[str] | None = None) -> None:
    """Score the finished cells of a grid that its file of classifiers does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grid", type=Path)
    parser.add_argument("runs", type=Path, help="where the cells' folders lie")
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of those of the grid")
    parser.add_argument("--only", nargs="+", default=[], help="only these labels of their axes")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    path = options.results / options.grid.stem / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = read_rows(path)
    grid = read_grid(options.grid, seeds=options.seeds)
    for cell in grid.cells:
        run = options.runs / cell.name
        if not _is_wanted(cell, grid, {*options.only}):
            continue
        if (run / "summary.json").exists() and all(row["cell"] != cell.name for row in rows):
            rows += measure(cell, run)
            write_rows(path, rows)
            print(f"{cell.title}: stored", flush=True)


def _is_wanted(cell: Cell, grid: Grid, labels: set[str]) -> bool:
    """Return whether the cell has one of the labels on every axis that they name."""
    named = {axis: labels & {*grid.axes[axis]} for axis in cell.at}
    return all(label in named[axis] for axis, label in cell.at.items() if named[axis])


def measure(cell: Cell, run: Path) -> list[Row]:
    """Return the scores of a run's final model with each classifier."""
    recipe = cell.recipe
    with threads(1):
        federation = prepare(recipe)
        data = federation.dataset
        method = build_method(recipe.method.name, recipe.method.options)
        network = network_of(recipe, method, data)
        last = load_checkpoint(run / "final.safetensors").state
        restore(network, last)
        network.eval()
        sums = sums_over(network, data, federation.partition.clients)
        trained = read_head(last, linear_classifier(network, len(data.classes)))
        heads = heads_of(trained, sums, data.task)
        embedded = {
            name: (torch.cat([h for h, _ in _batches(network, data, part)]), part)
            for name, part in federation.scored.items()
        }
        place = {"cell": cell.name, **cell.at, "seed": cell.seed}
        return [
            {**place, "head": name, **_scores(head, embedded, data.task)}
            for name, head in heads.items()
        ]


def heads_of(trained: Head, sums: EmbeddingSums, task: Task) -> dict[str, Head]:
    """Return the trained classifier and its blends with each closed form."""
    heads = {TRAINED: trained}
    for name, form in FORMS.items():
        fitted = form.fit(sums, task)
        for share in SHARES:
            heads[title_of(name, share)] = blend_heads(trained, fitted, sums, share, task)
    return heads


def title_of(form: str, share: float) -> str:
    """Return the name of a closed form, or of its blend with the trained classifier."""
    return form if share == 1.0 else f"{form}, blend {share:g}"


def sums_over(network: nn.Module, data: Dataset, clients: Sequence[IntArray]) -> EmbeddingSums:
    """Return the sums of embeddings over all clients."""
    return add_sums(
        sum_embeddings(embeddings, labels, len(data.classes), data.task)
        for rows in clients
        if len(rows)
        for embeddings, labels in _batches(network, data, data.train.take(np.asarray(rows)))
    )


def _batches(network: nn.Module, data: Dataset, part: Examples) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, len(part), BATCH):
        rows = part.take(np.arange(start, min(start + BATCH, len(part))))
        inputs = normalize(torch.tensor(np.asarray(rows.inputs)), data.mean, data.std)
        with torch.inference_mode():
            yield embed(network, inputs), torch.tensor(np.asarray(rows.labels))


def _scores(head: Head, embedded: Mapping[str, tuple[Tensor, Examples]], task: Task) -> Row:
    whole, worst = MEASURES[task]
    row: Row = {}
    for name, (embeddings, part) in embedded.items():
        scores = score_logits(head(embeddings).float().numpy(), part.labels, task)
        row[f"{name} {whole}"] = round(float(scores.macro[whole]), 5)
        row[f"{name} worst class"] = round(float(np.nanmin(scores.per_class[worst])), 5)
    return row


def table(
    rows: Sequence[Row], numbers: Sequence[str], axis: str = "data", form: str = "LDA"
) -> str:
    """Return each method as trained and with a closed form: accuracy, recall of the worst class.

    Args:
        rows: The stored scores of one grid.
        numbers: Numbers of the two tables, which begin the numbers of their rows.
        axis: The axis of the grid whose labels are the columns.
        form: The closed form.
    """
    columns = list(dict.fromkeys(row[axis] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    seeds = len({row["seed"] for row in rows})
    head = ["row", "method"]
    for column in columns:
        head += [f"{column}, as trained", f"{form}", "difference"]
    blocks = []
    for number, (measure, title) in zip(numbers, SHOWN.items(), strict=True):
        lines = []
        for place, method in enumerate(methods, start=1):
            line = [f"{number}.{place}", method]
            for column in columns:
                one, other = (
                    _by_seed(rows, measure, {axis: column, "method": method, "head": which})
                    for which in (TRAINED, form)
                )
                line += [score_text(one, seeds), score_text(other, seeds), compare(other, one)]
            lines.append(line)
        blocks += [f"**{title}**", markdown(head, lines, words=2)]
    return "\n\n".join(blocks)


def _by_seed(rows: Sequence[Row], measure: str, at: Mapping[str, str]) -> dict[int, float]:
    return {
        int(row["seed"]): float(row[f"test {measure}"])
        for row in rows
        if all(row[axis] == label for axis, label in at.items())
    }


if __name__ == "__main__":
    main()
