"""Intervals over test patients: how far scores and differences would move with other patients.

Seeds have the same test films, so an interval over seeds says nothing of them. Here patients are
drawn with replacement, the same ones for every method and seed, and the mean over seeds is taken.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.evaluation.figures import Figures, Outcomes
from fedbb.evaluation.score_report import Bootstrap, probabilities_of
from fedbb.recipes.grid import Cell, read_grid
from fedbb.records import FloatArray, Task
from studies.collect import write_rows
from studies.rescore import look
from studies.stored import GRIDS, RESULTS, Row
from studies.tables import markdown

GRID = "chest-blocks"
FILE = "patient-bootstrap.csv"
REPLICATES = 2000
PAIRS = (
    ("FedBB", "FedAvg"),
    ("FedBB", "FedAvg-scaled (control)"),
    ("FedAvg-scaled (control)", "FedAvg"),
)


def main(words: Sequence[str] | None = None) -> None:
    """Score the finished cells of the grid again and store the intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="where the cells of the grid lie")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    rows: list[Row] = []
    cells = read_grid(GRIDS / f"{GRID}.toml").cells
    for place in dict.fromkeys(cell.at["skew"] for cell in cells):
        here = [cell for cell in cells if cell.at["skew"] == place]
        drawn = {
            method: replicates_of(
                [cell for cell in here if cell.at["method"] == method], options.runs
            )
            for method in dict.fromkeys(cell.at["method"] for cell in here)
        }
        rows += [{"skew": place, **row} for row in summarize(drawn)]
        print(f"{place}: measured")
    write_rows(options.results / FILE, rows)


def replicates_of(cells: Sequence[Cell], runs: Path) -> FloatArray:
    """Return the mean AUROC over the seeds of a method: of all films, then of each replicate."""
    scores = []
    for cell in cells:
        federation, logits = look(cell.recipe, runs / cell.name)
        test = federation.scored["test"]
        scores.append(replicate(logits["test"], test.labels, test.columns["patient"]))
    return np.asarray(np.mean(scores, axis=0))


def replicate(
    logits: FloatArray, labels: FloatArray, patients: npt.NDArray[Any], number: int = REPLICATES
) -> FloatArray:
    """Return the mean AUROC over findings, of all films and then of each draw of patients.

    The draws depend on the patients and the number alone.
    """
    probability = probabilities_of(logits, Task.MULTILABEL)
    truth = labels == 1
    known = np.ones_like(truth)
    outcomes = Outcomes(Task.MULTILABEL, truth, known, logits > 0, probability, logits)
    figures = Figures(outcomes)
    blocks = Bootstrap(number, groups=patients).blocks(*labels.shape)
    found = [
        figures.of_classes(weights)["auroc"] for weights in (np.ones((len(labels), 1)), *blocks)
    ]
    return np.asarray(np.nanmean(np.concatenate(found, axis=1), axis=0))


def summarize(drawn: Mapping[str, FloatArray]) -> list[Row]:
    """Return the score of each method and the differences, with ends of their 95 % intervals."""
    wanted = dict(drawn)
    for one, other in PAIRS:
        if one in drawn and other in drawn:
            wanted[f"{one} − {other}"] = drawn[one] - drawn[other]
    rows = []
    for name, values in wanted.items():
        low, high = np.quantile(values[1:], (0.025, 0.975))
        ends = {"auroc": values[0], "low": low, "high": high}
        rows.append({"what": name, **{key: round(float(end), 5) for key, end in ends.items()}})
    return rows


def table(rows: Sequence[Row], number: str = "10k") -> str:
    """Return scores and differences with intervals over patients, a column for each place."""
    places = list(dict.fromkeys(row["skew"] for row in rows))
    lines = []
    for place, what in enumerate(dict.fromkeys(row["what"] for row in rows), start=1):
        own = {row["skew"]: row for row in rows if row["what"] == what}
        is_difference = " − " in what
        lines.append(
            [f"{number}.{place}", what, *(_cell(own.get(at), is_difference) for at in places)]
        )
    return markdown(["row", "AUROC or difference", *places], lines, words=2)


def _cell(row: Row | None, is_difference: bool) -> str:
    if row is None:
        return "–"
    score, low, high = (100 * float(row[key]) for key in ("auroc", "low", "high"))
    sign = "+" if is_difference else ""
    return f"{score:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]".replace("-", "−")


if __name__ == "__main__":
    main()
