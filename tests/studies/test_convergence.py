from __future__ import annotations

import pytest
from studies.convergence import rounds_to, unsteadiness
from studies.figures import LINES, PUBLISHED_LINES, by_round
from studies.stored import read_stored


@pytest.mark.parametrize(("target", "rounds"), [(0.1, 1), (0.3, 3), (0.25, 3), (0.4, 5)])
def test_rounds_to_a_target_count_from_one_and_end_one_past_the_last(target: float, rounds: int):
    assert rounds_to([0.1, 0.2, 0.3, 0.2], target) == rounds


def test_unsteadiness_looks_at_the_second_half_only():
    assert unsteadiness([0.0, 1.0, 0.5, 0.6, 0.4]) == pytest.approx(15.0)
    steady = unsteadiness([0.9, 0.0, 0.3, 0.3, 0.3, 0.3])
    assert steady == 0.0


def test_curves_of_stored_runs_are_drawn_for_every_column_and_method():
    stored = read_stored("chest-xrays")
    assert stored is not None
    figure = by_round(stored, "test auroc", "AUROC by round")
    methods = [label for label in LINES if label in stored.grid.axes["method"]]
    assert [len(axes.lines) for axes in figure.axes] == [len(methods)] * 4
    assert all(len(line.get_xdata()) == 30 for axes in figure.axes for line in axes.lines)


def test_methods_and_columns_without_results_are_not_drawn():
    stored = read_stored("niid-bench")
    assert stored is not None
    figure = by_round(stored, "test accuracy", "accuracy by round")
    finished = {(row["partition"], row["method"]) for row in stored.cells}
    by_column = {at["partition"]: 0 for at in stored.places()}
    for column, method in finished:
        by_column[column] += method in {**LINES, **PUBLISHED_LINES}
    assert [len(axes.lines) for axes in figure.axes] == [n for n in by_column.values() if n]
