"""Final models of the study scored again: at other thresholds, and with adjusted logits."""

import numpy as np
import pytest
from studies.rescore import look, measure_new
from studies.stored import read_rows

from helpers.small_run import finish, make_recipe, small_recipe, small_values
from studies import logit_adjustment, thresholds


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
    assert len(lines) == 10 + 1 + 2 + len(thresholds.PAIRS)
    texts = " | ".join(["55.0 ± 7.1 (2 of 3 seeds)"] * 3)
    assert lines[7] == f"| 6g.6 | labels, δ = 0.5 | FedBB | {texts} |"


def test_logits_are_adjusted_by_the_log_prior_of_their_class(tmp_path):
    recipe = small_recipe(tmp_path, method={"name": "fedavg"}, rounds={"number": 2})
    summary, _ = finish(recipe, tmp_path / "run")
    scores = logit_adjustment.measure(recipe, tmp_path / "run")
    assert scores["unadjusted"] == summary["final"]["scores"]["test"]["macro"]["accuracy"]
    federation, logits = look(recipe, tmp_path / "run")
    labels = federation.dataset.train.labels
    share = np.array([(labels == c).mean() for c in range(3)])
    said = np.argmax(logits["test"] - np.log(share), axis=1)
    expected = np.mean(said == federation.scored["test"].labels)
    assert scores["adjusted"] == pytest.approx(expected)


def test_only_what_is_finished_and_not_stored_is_measured(tmp_path, capsys):
    cells = thresholds.wanted()[:2]
    folder = tmp_path / "runs" / cells[0].name
    folder.mkdir(parents=True)
    (folder / "summary.json").touch()
    words = [str(tmp_path / "runs"), "--results", str(tmp_path)]
    seen = []

    def measure(recipe, run):
        seen.append(run)
        return {"half": 0.123456}

    for _ in range(2):
        measure_new(cells, "stored.csv", measure, words)
    assert seen == [folder]
    assert read_rows(tmp_path / "stored.csv")[0]["half"] == "0.12346"
    assert capsys.readouterr().out.count("its run is not finished") == 2


def test_differences_pair_methods_and_columns_by_seed():
    rows = [
        {"data": data, "method": method, "seed": seed, "unadjusted": 0.5, "adjusted": 0.52}
        for data in logit_adjustment.DATA
        for method in logit_adjustment.METHODS
        for seed in (0, 1)
    ]
    lines = logit_adjustment.table(rows).splitlines()
    (line,) = [line for line in lines if line.startswith("| FedAvg, adjusted − FedBB, unadjusted")]
    assert line.split(" | ")[1] == "+2.0 [+2.0, +2.0], ahead (2 of 2 seeds)"
    (line,) = [line for line in lines if line.startswith("| FedBB, adjusted − FedAvg, adjusted")]
    assert line.split(" | ")[1] == "equal"
