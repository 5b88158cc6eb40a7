"""Rows and paired differences, by hand."""

import math

import pytest

from fedbb.report.collect import read_runs
from fedbb.report.groups import group
from fedbb.report.tables import compare, summarize
from helpers.run_builder import LEVELS, Sketch, build_all

ROUNDS = 2
REACHED = 1 - 0.6**ROUNDS  # the part of its level that a made-up run has reached at its end


def comparison(root, levels):
    """Make runs with these final scores: {method: [score of seed 0, of seed 1, …]}."""
    sketches = [
        Sketch(method, seed, rounds=ROUNDS, level=score / REACHED)
        for method, scores in levels.items()
        for seed, score in enumerate(scores)
        if score is not None
    ]
    (found,) = group(read_runs(build_all(root, sketches)))
    return found


def test_a_row_has_mean_and_sample_deviation_of_the_final_round(tmp_path):
    found = comparison(tmp_path, {"fedavg": [0.50, 0.52, 0.57]})
    (row,) = summarize([found], ["accuracy"])
    # mean 1.59 / 3; squares 0.03², 0.01², 0.04² sum to 26e-4, over 2 is 13e-4
    assert row.final.mean == pytest.approx(0.53)
    assert row.final.deviation == pytest.approx(math.sqrt(13e-4))
    assert (row.method, row.metric, row.seeds) == ("FedAvg", "accuracy", (0, 1, 2))


def test_the_best_round_is_kept_apart_from_the_final_one(tmp_path):
    sketches = [Sketch(seed=seed, rounds=12, validation=True) for seed in range(3)]
    runs = read_runs(build_all(tmp_path, sketches))
    (row,) = summarize(group(runs), ["balanced_accuracy"])
    best = [run.summary.best.scores["test"].macro["balanced_accuracy"] for run in runs]
    assert row.best.mean == pytest.approx(sum(best) / 3)
    assert row.best.mean != pytest.approx(row.final.mean)
    assert row.chosen_on == "validation"


def test_differences_are_paired_by_seed(tmp_path):
    levels = {"fedavg": [0.50, 0.60], "fedavg-scaled": [0.55, 0.61], "fedbb": [0.53, 0.65]}
    items = compare([comparison(tmp_path, levels)], ["f1"])
    found = {(item.method, item.against): item for item in items}
    assert list(found) == [
        ("FedAvg-scaled", "FedAvg"),
        ("FedBB", "FedAvg"),
        ("FedBB", "FedAvg-scaled"),
    ]
    # 0.03 and 0.05: mean 0.04, deviation √2·0.01
    ahead = found["FedBB", "FedAvg"]
    assert ahead.spread.mean == pytest.approx(0.04)
    assert ahead.spread.deviation == pytest.approx(math.sqrt(2) * 0.01)
    assert (ahead.ahead, ahead.behind, ahead.is_control) == (2, 0, False)
    # -0.02 and 0.04: mean 0.01, deviation √2·0.03
    control = found["FedBB", "FedAvg-scaled"]
    assert control.spread.mean == pytest.approx(0.01)
    assert control.spread.deviation == pytest.approx(math.sqrt(2) * 0.03)
    assert (control.ahead, control.behind, control.is_control) == (1, 1, True)


def test_only_seeds_that_both_have_are_compared(tmp_path):
    levels = {"fedavg": [0.5, 0.9, None], "fedbb": [None, 0.8, 0.7]}
    (item,) = compare([comparison(tmp_path, levels)], ["f1"])
    assert item.spread.number == 1
    assert item.spread.mean == pytest.approx(-0.1)


def test_without_fedavg_there_is_nothing_to_compare(tmp_path):
    assert compare([comparison(tmp_path, {"fedbb": [0.5]})], ["f1"]) == []


def test_a_metric_that_was_not_scored_is_undefined(tmp_path):
    found = comparison(tmp_path, {method: [0.5, 0.6] for method in LEVELS})
    assert all(math.isnan(row.final.mean) for row in summarize([found], ["luck"]))
    assert all(item.spread.number == 0 for item in compare([found], ["luck"]))
