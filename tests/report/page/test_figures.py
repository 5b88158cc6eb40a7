"""What figures are drawn from equals what a loop over the runs finds."""

import json
import statistics

import pytest

from fedbb.report.groups import group
from fedbb.report.page.figures import (
    MOST_CLIENTS,
    classes,
    cost,
    curves,
    figure_data,
    is_reweighed,
    partition,
    weights,
)
from fedbb.report.results import read_runs
from helpers.run_builder import Sketch, build_all

METHODS = ("fedavg", "fedavg-scaled", "fedbb")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    sketches = [Sketch(method, seed) for method in METHODS for seed in range(3)]
    (found,) = group(read_runs(build_all(tmp_path_factory.mktemp("runs"), sketches)))
    return found


def test_curves_are_means_and_deviations_over_seeds(comparison):
    found = curves(comparison, "f1")
    for part, (means, deviations) in zip(comparison.methods, found["methods"], strict=True):
        for at in range(6):
            values = [100 * run.rounds[at].scores["test"].macro["f1"] for run in part.runs]
            assert means[at] == round(statistics.mean(values), 2)
            assert deviations[at] == pytest.approx(statistics.stdev(values), abs=0.006)


def test_a_run_that_stopped_early_keeps_its_last_score_in_the_curve(tmp_path):
    sketches = [
        Sketch(seed=0, rounds=2),
        Sketch(seed=1, rounds=3, recipe={"rounds": {"number": 2}}),
    ]
    (found,) = group(read_runs(build_all(tmp_path, sketches)))
    ((means, deviations),) = curves(found, "f1")["methods"]
    assert len(means) == 3
    short, long = (run.rounds[-1].scores["test"].macro["f1"] for run in found.methods[0].runs)
    assert means[2] == round(100 * (short + long) / 2, 2)
    assert deviations[2] is not None


def test_gains_are_paired_by_seed_and_ordered_from_head_to_tail(comparison):
    found = classes(comparison)
    assert found["cases"] == sorted(found["cases"], reverse=True)
    base, _, fedbb = comparison.methods
    assert found["gains"][0] is None
    for name, gain in zip(found["names"], found["gains"][2][0], strict=True):
        at = comparison.federation.classes.index(name)
        own, rival = (
            [run.summary.final.scores["test"].per_class["recall"][at] for run in part.runs]
            for part in (fedbb, base)
        )
        gaps = [100 * (a - b) for a, b in zip(own, rival, strict=True)]
        assert gain == pytest.approx(statistics.mean(gaps), abs=0.006)


def test_seeds_that_only_one_method_has_do_not_shift_the_pairs(tmp_path):
    wanted = [
        *(Sketch("fedavg", seed) for seed in (0, 1, 2)),
        Sketch("fedbb", 1),
        Sketch("fedbb", 2),
    ]
    (found,) = group(read_runs(build_all(tmp_path, wanted)))
    base, fedbb = found.methods
    drawn = classes(found)
    at = found.federation.classes.index(drawn["names"][0])
    own, rival = (
        [run.summary.final.scores["test"].per_class["recall"][at] for run in runs]
        for runs in (fedbb.runs, base.runs[1:])
    )
    gaps = [100 * (a - b) for a, b in zip(own, rival, strict=True)]
    assert drawn["gains"][1][0][0] == pytest.approx(statistics.mean(gaps), abs=0.006)
    assert drawn["gains"][1][1][0] == pytest.approx(statistics.stdev(gaps), abs=0.006)


def test_without_a_common_seed_there_is_no_gain(tmp_path):
    paths = build_all(tmp_path, [Sketch("fedavg", 0), Sketch("fedbb", 1)])
    (found,) = group(read_runs(paths))
    means, _ = classes(found)["gains"][1]
    assert set(means) == {None}


def test_weights_are_told_of_methods_that_change_them(comparison):
    assert [is_reweighed(part) for part in comparison.methods] == [False, False, True]
    found = weights(comparison.methods[2])
    assert sum(found["before"]) == pytest.approx(100, abs=0.1)
    assert sum(found["after"]) == pytest.approx(100, abs=0.1)
    clients = {client.client: client for client in comparison.methods[2].runs[0].federation.known}
    spreads = [clients[number].dispersion for number in found["clients"]]
    assert spreads == sorted(spreads)


def test_of_many_clients_the_largest_are_drawn(tmp_path):
    (found,) = group(read_runs(build_all(tmp_path, [Sketch(clients=MOST_CLIENTS + 20)])))
    drawn = partition(found.first)
    assert drawn["of"] == MOST_CLIENTS + 20
    assert len(drawn["clients"]) == len(drawn["counts"]) == MOST_CLIENTS
    sizes = sorted((client.samples for client in found.federation.known), reverse=True)
    assert sum(drawn["samples"]) == sum(sizes[:MOST_CLIENTS])
    assert drawn["clients"] == sorted(drawn["clients"])


def test_cost_is_the_mean_time_of_a_run_and_its_score(comparison):
    seconds, score, _ = cost(comparison, comparison.methods[0])
    finals = [
        run.summary.final.scores["test"].macro["balanced_accuracy"]
        for run in comparison.methods[0].runs
    ]
    assert seconds == 4.5
    assert score == round(100 * statistics.mean(finals), 2)


def test_undefined_scores_become_null(tmp_path):
    (found,) = group(read_runs(build_all(tmp_path, [Sketch(undefined=(0, 3))])))
    text = json.dumps(figure_data(found), allow_nan=False)
    assert json.loads(text)["classes"]["scores"][0][0].count(None) == 2
