"""Rows by class: ordered by frequency, neighbors together where there are many."""

import numpy as np

from fedbb.report.plots.classes import plot_gains
from fedbb.report.plots.rows import class_order, class_rows
from helpers.drawn_figures import MANY, compared


def test_names_and_counts_stand_beside_their_bars(tmp_path):
    names = ("rare", "common", "middle")
    comparison = compared(tmp_path, classes=names)
    order, counts = class_order(comparison)
    rows = class_rows(comparison)
    assert rows.names == [names[index] for index in order]
    assert rows.counts == [f"{counts[index]:,.0f}" for index in order]
    (axes,) = plot_gains(comparison, comparison.methods[0], "recall").axes
    places = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert [places[name] for name in rows.names] == [0, 1, 2]
    low, high = axes.get_ylim()
    assert low > high  # the first row is on top


def test_very_many_classes_are_drawn_as_means_over_neighbors(tmp_path):
    comparison = compared(tmp_path, classes=MANY)
    order, counts = class_order(comparison)
    rows = class_rows(comparison)
    np.testing.assert_array_equal(np.concatenate(rows.classes), order)
    assert rows.names[:2] == ["ranks 1–4", "ranks 5–8"]
    assert rows.counts[0] == f"{counts[order[0]]:,.0f} to {counts[order[3]]:,.0f}"
