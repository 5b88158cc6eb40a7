"""Rounds until a method reaches FedAvg's final score, from the stored curves of the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedbb.report.statistics import paired_difference, spread_of
from fedbb.report.text import difference_text, metric_title
from studies.stored import RESULTS, StoredGrid, read_rows, read_stored
from studies.tables import MISSING, markdown

BASE = "FedAvg"
Curve = Sequence[float]
"""Test scores of one run, from its first round to its last."""


ROWS = ("MOON", "FedNova", "FedLC", "FedBB as printed", "FedBB", "FedAvg-scaled (control)")
COMPARED = {"natural-images": "accuracy", "chest-xrays": "auroc"}
"""Grids, and the metric of their curves."""


def tables(results: Path = RESULTS) -> str:
    """Return for each grid the rounds to FedAvg's final score, and how unsteady the curves are."""
    blocks = []
    for grid, metric in COMPARED.items():
        stored = read_stored(grid, results)
        if stored is not None:
            curves = read_curves(stored, metric, results)
            rows = [row for row in (BASE, *ROWS, "FedBB-plus") if row in _labels(stored)]
            blocks.append(f"**`{grid}`: rounds to FedAvg's final {metric_title(metric)}**")
            blocks.append(_rounds_table(stored, curves, rows))
            blocks.append(f"**`{grid}`: change of {metric_title(metric)} between rounds, points**")
            blocks.append(_steadiness_table(stored, curves, rows))
    return "\n\n".join(blocks)


def read_curves(stored: StoredGrid, metric: str, results: Path = RESULTS) -> dict[str, Curve]:
    """Return the test scores by round of each finished cell."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in read_rows(results / stored.name / "curves.csv"):
        if row["metric"] == metric and row["test"]:
            curves.setdefault(row["cell"], []).append((int(row["round"]), float(row["test"])))
    return {cell: [score for _, score in sorted(points)] for cell, points in curves.items()}


def rounds_to(curve: Curve, target: float) -> int:
    """Return the first round that reaches the target; one more than all rounds if none does."""
    return next((n for n, score in enumerate(curve, 1) if score >= target), len(curve) + 1)


def unsteadiness(curve: Curve) -> float:
    """Return the mean absolute change between neighboring rounds of the second half, in points."""
    later = np.asarray(curve[len(curve) // 2 :])
    return 100 * float(np.abs(np.diff(later)).mean())


def _labels(stored: StoredGrid) -> Sequence[str]:
    return stored.grid.axes[stored.grid.rows]


def curves_by_seed(
    stored: StoredGrid, curves: Mapping[str, Curve], spot: Mapping[str, str]
) -> dict[int, Curve]:
    """Return the curves of the finished cells at these labels, by seed."""
    return {
        int(row["seed"]): curves[row["cell"]]
        for row in stored.cells
        if row["cell"] in curves and all(row[axis] == label for axis, label in spot.items())
    }


def _rounds_table(stored: StoredGrid, curves: Mapping[str, Curve], labels: Sequence[str]) -> str:
    rows = []
    for label in labels:
        cells = []
        for at in stored.places():
            base = curves_by_seed(stored, curves, {stored.grid.rows: BASE, **at})
            own = curves_by_seed(stored, curves, {stored.grid.rows: label, **at})
            both = sorted(base.keys() & own.keys())
            needed = {seed: rounds_to(own[seed], base[seed][-1]) for seed in both}
            first = {seed: rounds_to(base[seed], base[seed][-1]) for seed in both}
            never = sum(needed[seed] > len(own[seed]) for seed in both)
            cells.append(_rounds_text(needed, first, never, is_base=label == BASE))
        rows.append([label, *cells])
    return markdown(["method", *(", ".join(at.values()) for at in stored.places())], rows)


def _rounds_text(
    needed: Mapping[int, float], first: Mapping[int, float], never: int, *, is_base: bool
) -> str:
    if not needed:
        return MISSING
    if never == len(needed):
        return f"never ({never} of {never} seeds)"
    mean = f"{spread_of(needed.values()).mean:.1f}"
    late = f" ({never} of {len(needed)} never)" if never else ""
    if is_base:
        return mean + late
    return f"{mean}{late}; saved {difference_text(paired_difference(first, needed))}"


def _steadiness_table(
    stored: StoredGrid, curves: Mapping[str, Curve], labels: Sequence[str]
) -> str:
    rows = []
    for label in labels:
        cells = []
        for at in stored.places():
            own = curves_by_seed(stored, curves, {stored.grid.rows: label, **at})
            values = [unsteadiness(curve) for curve in own.values()]
            cells.append(f"{spread_of(values).mean:.2f}" if values else MISSING)
        rows.append([label, *cells])
    return markdown(["method", *(", ".join(at.values()) for at in stored.places())], rows)


if __name__ == "__main__":
    print(tables())
