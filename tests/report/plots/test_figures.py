"""Scores by round and against time are those of the runs."""

import json
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.losses.pnb import PNB, PNBLoss
from fedbb.records import Task
from fedbb.report.groups import Comparison, MethodRuns, group
from fedbb.report.plots.canvas import class_order, class_rows
from fedbb.report.plots.figures import (
    MOST_CLIENTS,
    balanced_part,
    base_part,
    class_gains,
    cost_and_score,
    loss_shares,
    plot_costs,
    plot_curves,
    plot_gains,
    plot_partition,
    plot_shares,
    plot_weights,
    weighed_part,
)
from fedbb.report.results import read_runs
from fedbb.runs.metadata import ClientRecord, FederationRecord
from helpers.drawn_figures import MANY, compared, texts
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
    """Return a comparison whose methods take these seconds per round."""
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


# NIH ChestX-ray14, all 112,120 images: cases of each class, and shares in percent worked out apart
# from this code: positive and negative before, either after one factor, either after both.
NIH = {
    "Atelectasis": (11559, 0.74, 6.41, 7.06, 6.97),
    "Cardiomegaly": (2776, 0.18, 6.97, 1.84, 1.98),
    "Effusion": (13317, 0.85, 6.29, 7.99, 7.75),
    "Infiltration": (19894, 1.27, 5.88, 11.14, 10.08),
    "Mass": (5782, 0.37, 6.77, 3.73, 3.90),
    "Nodule": (6331, 0.40, 6.74, 4.07, 4.22),
    "Pneumonia": (1431, 0.09, 7.05, 0.96, 1.04),
    "Pneumothorax": (5302, 0.34, 6.81, 3.44, 3.61),
    "Consolidation": (4667, 0.30, 6.85, 3.04, 3.21),
    "Edema": (2303, 0.15, 7.00, 1.54, 1.66),
    "Emphysema": (2516, 0.16, 6.98, 1.67, 1.80),
    "Fibrosis": (1686, 0.11, 7.04, 1.13, 1.23),
    "Pleural thickening": (3385, 0.22, 6.93, 2.23, 2.39),
    "Hernia": (227, 0.01, 7.13, 0.15, 0.17),
}


def federation(task, *clients):
    """Return a federation of clients given as (samples, positives)."""
    shares = tuple(
        ClientRecord(number, samples, None, 0.5, 0.5, positives=tuple(map(float, positives)))
        for number, (samples, positives) in enumerate(clients)
    )
    whole = tuple(np.sum([client.positives for client in shares], axis=0))
    names = tuple(f"class {place}" for place in range(len(whole)))
    return FederationRecord("data", task, names, sum(c.samples for c in shares), {}, whole, shares)


def test_the_three_panels_of_the_chest_films():
    counts = [row[0] for row in NIH.values()]
    facts = federation(Task.MULTILABEL, (112_120, counts))
    before, between, after = loss_shares(facts, PNB(beta=0.9999999, tau=10))
    for place, (_, positive, negative, middle, both) in enumerate(NIH.values()):
        assert 100 * before.positive[place] == pytest.approx(positive, abs=0.006)
        assert 100 * before.negative[place] == pytest.approx(negative, abs=0.006)
        for side in (between.positive, between.negative):
            assert 100 * side[place] == pytest.approx(middle, abs=0.011)
        for side in (after.positive, after.negative):
            assert 100 * side[place] == pytest.approx(both, abs=0.011)


def case_by_case(facts, spec):
    """Return the shares after PNB by visiting every case of every client."""
    total = np.zeros((2, len(facts.classes)))
    for client in facts.clients:
        loss = PNBLoss(
            list(client.positives),
            [client.samples - number for number in client.positives],
            task=facts.task,
            beta=spec.beta,
            tau=spec.tau,
            mu=spec.mu,
        )
        for row, (place, positives) in zip(
            loss.explain(), enumerate(client.positives), strict=True
        ):
            for _ in range(int(positives)):
                total[0, place] += row.positive_weight
            for _ in range(client.samples - int(positives)):
                total[1, place] += row.negative_weight
    return total / total.sum()


@pytest.mark.parametrize("mu", [4.0, "unit"])
@pytest.mark.parametrize("task", list(Task))
def test_clients_weigh_by_their_own_counts_and_are_added_up(task, mu):
    facts = federation(task, (20, (12, 5, 3)), (9, (0, 1, 8)), (7, (4, 2, 1)))
    spec = PNB(beta=0.95, tau=2.0, mu=mu)
    after = loss_shares(facts, spec)[-1]
    expected = case_by_case(facts, spec)
    np.testing.assert_allclose(after.positive, expected[0])
    np.testing.assert_allclose(after.negative, expected[1], atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=1, max_size=4))
def test_every_panel_adds_up_to_one(positives):
    clients = [(30 + sum(counts), counts) for counts in positives]
    shares = loss_shares(federation(Task.MULTILABEL, *clients), PNB(beta=0.9))
    assert len(shares) == 3
    for share in shares:
        total = share.positive.sum() + share.negative.sum()
        assert total == pytest.approx(1) or total == 0


def test_one_class_per_sample_has_no_negative_cases_and_two_panels():
    plain, with_pnb = loss_shares(federation(Task.MULTICLASS, (10, (8, 2))), PNB(beta=0.9))
    np.testing.assert_allclose(plain.positive, [0.8, 0.2])
    assert with_pnb.positive[0] < 0.8
    assert not plain.negative.any()
    assert not with_pnb.negative.any()


def test_a_client_that_learns_nothing_leaves_an_empty_panel():
    shares = loss_shares(federation(Task.MULTICLASS, (10, (10, 0))), PNB())
    assert shares[1].positive.sum() == 0


def test_bars_are_the_shares_from_head_to_tail(tmp_path):
    comparison = compared(tmp_path, task="multilabel")
    part, spec = weighed_part(comparison)
    assert part.method == "fedbb"
    figure = plot_shares(comparison, part, spec)
    shares = loss_shares(part.runs[0].federation, spec)
    order = np.argsort(-np.mean([run.federation.class_counts for run in part.runs], axis=0))
    assert len(figure.axes) == 3
    for axes, share in zip(figure.axes, shares, strict=True):
        widths = np.array([bar.get_width() for bar in axes.patches]).reshape(2, -1)
        np.testing.assert_allclose(widths[0], 100 * share.positive[order])
        np.testing.assert_allclose(widths[1], 100 * share.negative[order])
    assert {"positive cases", "negative cases", "plain loss"} <= set(texts(figure))


def test_many_classes_are_added_up_by_rank(tmp_path):
    comparison = compared(tmp_path, classes=MANY, seeds=1)
    figure = plot_shares(comparison, *weighed_part(comparison))
    for axes in figure.axes:
        assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(100)


def test_without_pnb_there_is_nothing_to_show(tmp_path):
    comparison = compared(tmp_path, seeds=1)
    plain = type(comparison)(comparison.title, comparison.methods[:2])
    assert weighed_part(plain) is None


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
