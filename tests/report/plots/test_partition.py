"""The map of clients and classes shows every count, and nothing where there is nothing."""

import numpy as np

from fedbb.report.plots.partition import plot_partition
from fedbb.report.plots.rows import class_order
from helpers.drawn_figures import MANY, compared, texts


def counts_of(comparison):
    order, _ = class_order(comparison)
    return np.array([client.positives for client in comparison.federation.clients])[:, order]


def test_cells_are_stronger_the_more_cases_they_hold_and_empty_without(tmp_path):
    comparison = compared(tmp_path)
    counts = counts_of(comparison).ravel()
    (axes,) = plot_partition(comparison).axes
    strength = axes.collections[0].get_array()[..., 3].ravel()
    assert (counts == 0).any()
    np.testing.assert_array_equal(strength == 0, counts == 0)
    order = np.argsort(counts)
    assert (np.diff(strength[order])[np.diff(counts[order]) > 0] > 0).all()


def test_each_count_is_written_in_its_cell(tmp_path):
    comparison = compared(tmp_path)
    counts = counts_of(comparison)
    (axes,) = plot_partition(comparison).axes
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written == {
        (column + 0.5, row + 0.5): f"{count:.0f}"
        for (row, column), count in np.ndenumerate(counts)
        if count > 0
    }
    low, high = axes.get_ylim()
    assert low > high  # the first client is on top


def test_a_large_map_has_no_figures_and_fewer_names(tmp_path):
    figure = plot_partition(compared(tmp_path, classes=MANY, clients=30))
    (axes,) = figure.axes
    assert len(axes.texts) == 0
    assert axes.collections[0].get_array().shape == (30, 40, 4)
    assert sum(text.startswith("client ") for text in texts(figure)) <= 24
