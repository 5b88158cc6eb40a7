"""The partition's map and the clients' weights are those of the runs."""

import numpy as np

from fedbb.report.groups import group
from fedbb.report.plots.clients import MOST_CLIENTS, balanced_part, plot_partition, plot_weights
from fedbb.report.plots.rows import class_order
from fedbb.report.results import read_runs
from helpers.drawn_figures import MANY, compared, texts
from helpers.run_builder import Sketch, build_all


def counts_of(comparison):
    order, _ = class_order(comparison)
    return np.array([client.positives for client in comparison.federation.known])[:, order]


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


def test_bars_are_the_weights_by_size_and_by_cbr_from_even_to_uneven(tmp_path):
    comparison = compared(tmp_path, clients=7)
    part = balanced_part(comparison)
    assert part.method == "fedbb"
    clients = sorted(part.runs[0].federation.known, key=lambda client: client.dispersion)
    figure = plot_weights(comparison, part)
    (axes,) = figure.axes
    bars = np.array([bar.get_width() for bar in axes.patches]).reshape(2, -1)
    np.testing.assert_allclose(bars[0], [100 * client.weight_by_samples for client in clients])
    np.testing.assert_allclose(bars[1], [100 * client.weight for client in clients])
    np.testing.assert_allclose(bars.sum(axis=1), 100)
    words = texts(figure)
    for client in clients:
        assert f"client {client.client}" in words
        assert f"{client.samples:,} samples, R {client.dispersion:.3f}" in words


def test_of_very_many_clients_those_that_change_most_are_drawn_and_it_says_so(tmp_path):
    comparison = compared(tmp_path, clients=30)
    part = balanced_part(comparison)
    figure = plot_weights(comparison, part)
    assert any(f"{MOST_CLIENTS} of 30 clients" in text for text in texts(figure))
    clients = part.runs[0].federation.known
    changes = sorted((abs(c.weight - c.weight_by_samples) for c in clients), reverse=True)
    (axes,) = figure.axes
    bars = np.array([bar.get_width() for bar in axes.patches]).reshape(2, -1) / 100
    np.testing.assert_allclose(
        sorted(abs(bars[1] - bars[0]), reverse=True), changes[:MOST_CLIENTS], atol=1e-12
    )


def test_without_a_method_that_looks_at_skew_there_is_nothing_to_draw(tmp_path):
    runs = read_runs(build_all(tmp_path, [Sketch("fedavg"), Sketch("fedavg-scaled")]))
    assert balanced_part(group(runs)[0]) is None
