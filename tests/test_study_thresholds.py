"""Thresholds for the study's X-ray models: what is chosen, and what one half gives."""

import numpy as np
import pytest
from studies import thresholds

from small_run import finish, make_recipe, small_values


def test_the_threshold_chosen_divides_cases_best_and_of_equals_is_the_lowest():
    logits = np.array([[-3.0], [-2.0], [-1.0], [0.0], [4.0]])
    labels = np.array([[0], [1], [0], [1], [1]])
    # Above -0.5 two of three cases and none of the others; above -2.5 all cases and one of two.
    assert thresholds.choose(logits, labels, np.array([9.0])) == [-0.5]
    labels = np.array([[0], [1], [0], [1], [0]])
    # Above -2.5 all cases and two of three others; above -0.5 one case and one other: less.
    assert thresholds.choose(logits, labels, np.array([9.0])) == [-2.5]


@pytest.mark.parametrize("value", [0, 1])
def test_a_class_of_one_kind_of_case_takes_the_other_threshold(value):
    labels = np.full((4, 1), value)
    assert thresholds.choose(np.zeros((4, 1)), labels, np.array([-2.5])) == [-2.5]


def test_a_model_that_answers_alike_says_yes_to_all_or_none():
    chosen = thresholds.choose(np.full((2, 1), 3.0), np.array([[0], [1]]), np.array([0.0]))
    assert chosen == [2.0]


def test_one_half_is_what_the_run_was_scored_by(tmp_path):
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, (80, 3))
    images = rng.integers(0, 120, (80, 8, 8), dtype=np.uint8)
    images[:, :3, 0] += (100 * labels).astype(np.uint8)
    split = np.where(np.arange(80) < 60, "train", "test")
    np.savez(tmp_path / "small.npz", images=images, labels=labels, split=split)
    values = small_values(tmp_path / "small.npz")
    values["data"]["validation"] = 0.2
    recipe = make_recipe(values)
    summary, _ = finish(recipe, tmp_path / "run")
    scores = thresholds.measure(recipe, tmp_path / "run")
    final = summary["final"]["scores"]["test"]["macro"]
    assert scores["half"] == final["balanced_accuracy"]
    assert set(scores) == set(thresholds.RULES)


def test_the_table_has_a_line_for_each_method_of_each_column():
    rows = [
        {"skew": "labels, δ = 0.5", "method": "FedBB", "seed": seed}
        | dict.fromkeys(thresholds.RULES, 0.5 + 0.1 * seed)
        for seed in (0, 1)
    ]
    lines = thresholds.table(rows).splitlines()
    assert len(lines) == 10
    told = " | ".join(["55.0 ± 7.1 (2 of 3 seeds)"] * 3)
    assert lines[7] == f"| 6g.6 | labels, δ = 0.5 | FedBB | {told} |"
