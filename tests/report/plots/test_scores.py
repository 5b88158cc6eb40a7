"""Scores by round and against time are those of the runs."""

import json
import statistics

import numpy as np
import pytest

from fedbb.report.groups import group
from fedbb.report.plots.scores import cost_and_score, plot_costs, plot_curves
from fedbb.report.results import read_runs
from helpers.drawn_figures import compared, texts
from helpers.run_builder import LEVELS, Sketch, build_all


def by_round(part, metric):
    return 100 * np.array(
        [[finished.scores["test"].macro[metric] for finished in run.rounds] for run in part.runs]
    )


def test_lines_are_means_and_bands_one_deviation_to_either_side(tmp_path):
    comparison = compared(tmp_path, seeds=4, rounds=5)
    (axes,) = plot_curves(comparison, "f1").axes
    for part, line, band in zip(comparison.methods, axes.lines, axes.collections, strict=True):
        scores = by_round(part, "f1")
        mean, deviation = scores.mean(axis=0), scores.std(axis=0, ddof=1)
        np.testing.assert_allclose(line.get_xdata(), [1, 2, 3, 4, 5])
        np.testing.assert_allclose(line.get_ydata(), mean)
        corners = band.get_paths()[0].vertices
        assert corners[:, 1].max() == np.max(mean + deviation)
        assert corners[:, 1].min() == np.min(mean - deviation)


def test_one_seed_has_no_band(tmp_path):
    (axes,) = plot_curves(compared(tmp_path, seeds=1), "f1").axes
    assert len(axes.lines) == 3
    assert len(axes.collections) == 0


def test_the_figure_says_what_it_shows(tmp_path):
    comparison = compared(tmp_path)
    words = texts(plot_curves(comparison, "balanced_accuracy"))
    assert "Balanced accuracy on test data by round" in words
    assert comparison.title in words
    assert {"FedAvg", "FedAvg-scaled", "FedBB", "round", "points of 100"} <= set(words)


def test_an_undefined_metric_leaves_an_empty_figure(tmp_path):
    (axes,) = plot_curves(compared(tmp_path), "luck").axes
    assert all(np.isnan(line.get_ydata()).all() for line in axes.lines)


def timed(root, seconds):
    """Return a comparison whose methods take so many seconds a round."""
    folders = build_all(root, [Sketch(method, seed) for method in LEVELS for seed in (0, 1)])
    for number, folder in enumerate(folders):
        lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
        for line in lines:
            line["seconds"] = {"train": seconds[number // 2], "score": 0.1 * (number % 2)}
        (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = group(read_runs(folders))
    return found


def test_seconds_and_scores_are_means_over_seeds(tmp_path):
    comparison = timed(tmp_path, (1.0, 2.0, 3.0))
    for part, seconds in zip(comparison.methods, (1.0, 2.0, 3.0), strict=True):
        cost, score = cost_and_score(part, "f1")
        finals = [run.rounds[-1].scores["test"].macro["f1"] for run in part.runs]
        assert cost.mean == pytest.approx(6 * (seconds + 0.05))
        assert score.mean == pytest.approx(100 * statistics.mean(finals))
        assert score.deviation == pytest.approx(100 * statistics.stdev(finals))


def test_points_stand_where_cost_and_score_meet(tmp_path):
    comparison = timed(tmp_path, (1.0, 2.0, 3.0))
    (axes,) = plot_costs(comparison, "f1").axes
    for part, line in zip(comparison.methods, axes.lines, strict=True):
        cost, score = cost_and_score(part, "f1")
        assert (line.get_xdata()[0], line.get_ydata()[0]) == (cost.mean, score.mean)
    assert axes.get_xscale() == "linear"


def test_times_far_apart_are_drawn_by_powers_of_ten(tmp_path):
    (axes,) = plot_costs(timed(tmp_path, (1.0, 2.0, 30.0)), "f1").axes
    assert axes.get_xscale() == "log"


def test_every_method_is_named(tmp_path):
    words = texts(plot_costs(compared(tmp_path, seeds=1), "f1"))
    assert {"FedAvg", "FedAvg-scaled", "FedBB", "seconds per run"} <= set(words)
