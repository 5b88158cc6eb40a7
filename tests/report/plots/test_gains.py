"""Gains over FedAvg, class by class, worked out again from the folders."""

import json

import numpy as np
import pytest

from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.plots.gains import base_part, class_gains, plot_gains
from fedbb.report.plots.rows import class_order, class_rows
from helpers.drawn_figures import MANY, compared, texts


def recalls(run):
    summary = json.loads((run.path / "summary.json").read_text())
    return summary["final"]["scores"]["test"]["per_class"]["recall"]


def test_points_are_mean_gains_paired_by_seed_from_head_to_tail(tmp_path):
    comparison = compared(tmp_path, seeds=3)
    base, *others = comparison.methods
    order, _ = class_order(comparison)
    (axes,) = plot_gains(comparison, base, "recall").axes
    points = [line for line in axes.lines if len(line.get_xdata()) == len(order)]
    for part, line in zip(others, points, strict=True):
        for row, place in enumerate(order):
            gains = [
                100 * (recalls(own)[place] - recalls(other)[place])
                for own, other in zip(part.runs, base.runs, strict=True)
            ]
            assert line.get_xdata()[row] == pytest.approx(sum(gains) / 3)


def test_only_seeds_that_both_have_are_compared(tmp_path):
    comparison = compared(tmp_path, seeds=3)
    base, control, _ = comparison.methods
    fewer = MethodRuns(control.method, control.label, control.runs[1:])
    classes = class_rows(comparison).classes
    some, all_ = (class_gains(part, base, "recall", classes) for part in (fewer, control))
    np.testing.assert_array_equal(some, all_[1:])


def test_many_classes_are_means_over_neighbors(tmp_path):
    comparison = compared(tmp_path, classes=MANY, seeds=1)
    base, control, _ = comparison.methods
    rows = class_rows(comparison)
    gains = class_gains(control, base, "recall", rows.classes)
    first = np.array(recalls(control.runs[0])) - np.array(recalls(base.runs[0]))
    assert gains[0, 0] == pytest.approx(100 * first[rows.classes[0]].mean())


def test_without_fedavg_or_a_shared_seed_there_is_no_gain(tmp_path):
    comparison = compared(tmp_path, seeds=2)
    base, control, fedbb = comparison.methods
    assert base_part(comparison) is base
    assert base_part(Comparison("x", (control, fedbb))) is None
    assert base_part(Comparison("x", (base,))) is None
    early = MethodRuns(base.method, base.label, base.runs[:1])
    late = MethodRuns(fedbb.method, fedbb.label, fedbb.runs[1:])
    assert base_part(Comparison("x", (early, late))) is None


def test_a_metric_that_was_not_scored_leaves_the_figure_empty(tmp_path):
    comparison = compared(tmp_path)
    gains = class_gains(*comparison.methods[:2], "luck", class_rows(comparison).classes)
    assert np.isnan(gains).all()
    assert "Luck gained over FedAvg" in texts(plot_gains(comparison, comparison.methods[0], "luck"))
