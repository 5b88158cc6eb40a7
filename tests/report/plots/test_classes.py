"""Per-class bars: ordered by frequency, true to the scores, undefined where undefined."""

import numpy as np
import pytest

from fedbb.report.plots.classes import class_order, class_rows, plot_classes
from helpers.drawn_figures import MANY, compared, texts


def final(part, metric):
    return np.array([run.summary.final.scores["test"].per_class[metric] for run in part.runs])


def test_bars_are_mean_scores_from_most_to_fewest_cases(tmp_path):
    comparison = compared(tmp_path, seeds=3)
    order, counts = class_order(comparison)
    assert (np.diff(counts[order]) <= 0).all()
    (axes,) = plot_classes(comparison, "recall").axes
    bars = np.array([bar.get_width() for bar in axes.patches]).reshape(3, -1)
    for part, drawn in zip(comparison.methods, bars, strict=True):
        np.testing.assert_allclose(drawn, 100 * final(part, "recall").mean(axis=0)[order])


def test_names_and_counts_stand_beside_their_bars(tmp_path):
    names = ("rare", "common", "middle")
    comparison = compared(tmp_path, classes=names)
    order, counts = class_order(comparison)
    rows = class_rows(comparison)
    assert rows.names == [names[index] for index in order]
    assert rows.counts == [f"{counts[index]:,.0f}" for index in order]
    (axes,) = plot_classes(comparison, "recall").axes
    places = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert [places[name] for name in rows.names] == [0, 1, 2]
    low, high = axes.get_ylim()
    assert low > high  # the first row is on top


def test_an_undefined_class_has_a_word_instead_of_a_bar(tmp_path):
    comparison = compared(tmp_path, undefined=(4,))
    (axes,) = plot_classes(comparison, "recall").axes
    assert texts(plot_classes(comparison, "recall")).count("undefined") == 3
    widths = [bar.get_width() for bar in axes.patches]
    assert widths.count(0) == 3


def test_very_many_classes_are_drawn_as_means_over_neighbors(tmp_path):
    comparison = compared(tmp_path, classes=MANY)
    order, counts = class_order(comparison)
    rows = class_rows(comparison)
    np.testing.assert_array_equal(np.concatenate(rows.classes), order)
    assert rows.names[:2] == ["ranks 1–4", "ranks 5–8"]
    assert rows.counts[0] == f"{counts[order[0]]:,.0f} to {counts[order[3]]:,.0f}"
    (axes,) = plot_classes(comparison, "recall").axes
    first = final(comparison.methods[0], "recall")[:, order[:4]].mean()
    assert axes.patches[0].get_width() == pytest.approx(100 * first)
