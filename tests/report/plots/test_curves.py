"""Learning curves show means and deviations over seeds."""

import numpy as np

from fedbb.report.plots.curves import plot_curves
from helpers.drawn_figures import compared, texts


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
