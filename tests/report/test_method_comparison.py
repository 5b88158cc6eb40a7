"""The methods of one federation: scores, paired differences and verdicts, by hand."""

import json
import math

import pytest

from fedbb.report.groups import group
from fedbb.report.method_comparison import (
    NO_RIVAL,
    MethodDifference,
    MethodScore,
    as_json,
    as_markdown,
    best_table,
    compare_methods,
    difference_table,
    differences_of,
    final_table,
    scores_of,
    verdict,
    verdicts,
)
from fedbb.report.results import read_runs
from fedbb.report.statistics import Verdict, paired_difference, spread_of
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
    (row,) = scores_of(found, ["accuracy"])
    # mean 1.59 / 3; squares 0.03², 0.01², 0.04² sum to 26e-4, over 2 is 13e-4
    assert row.final.mean == pytest.approx(0.53)
    assert row.final.deviation == pytest.approx(math.sqrt(13e-4))
    assert (row.method, row.metric, row.seeds) == ("FedAvg", "accuracy", (0, 1, 2))


def test_the_best_round_is_kept_apart_from_the_final_one(tmp_path):
    sketches = [Sketch(seed=seed, rounds=12, validation=True) for seed in range(3)]
    runs = read_runs(build_all(tmp_path, sketches))
    (row,) = scores_of(*group(runs), ["balanced_accuracy"])
    best = [run.summary.best.scores["test"].macro["balanced_accuracy"] for run in runs]
    assert row.best.mean == pytest.approx(sum(best) / 3)
    assert row.best.mean != pytest.approx(row.final.mean)
    assert row.chosen_on == "validation"


def test_differences_are_paired_by_seed(tmp_path):
    levels = {"fedavg": [0.50, 0.60], "fedavg-scaled": [0.55, 0.61], "fedbb": [0.53, 0.65]}
    items = differences_of(comparison(tmp_path, levels), ["f1"])
    found = {(item.method, item.against): item for item in items}
    assert list(found) == [
        ("FedAvg-scaled", "FedAvg"),
        ("FedBB", "FedAvg"),
        ("FedBB", "FedAvg-scaled"),
    ]
    # 0.03 and 0.05: mean 0.04, deviation √2·0.01
    ahead = found["FedBB", "FedAvg"]
    assert ahead.paired.spread.mean == pytest.approx(0.04)
    assert ahead.paired.spread.deviation == pytest.approx(math.sqrt(2) * 0.01)
    assert (ahead.paired.ahead, ahead.paired.behind, ahead.is_control) == (2, 0, False)
    # -0.02 and 0.04: mean 0.01, deviation √2·0.03
    control = found["FedBB", "FedAvg-scaled"]
    assert control.paired.spread.mean == pytest.approx(0.01)
    assert control.paired.spread.deviation == pytest.approx(math.sqrt(2) * 0.03)
    assert (control.paired.ahead, control.paired.behind, control.is_control) == (1, 1, True)


def test_only_seeds_that_both_have_are_compared(tmp_path):
    levels = {"fedavg": [0.5, 0.9, None], "fedbb": [None, 0.8, 0.7]}
    (item,) = differences_of(comparison(tmp_path, levels), ["f1"])
    assert item.paired.spread.number == 1
    assert item.paired.spread.mean == pytest.approx(-0.1)


def test_without_fedavg_there_is_nothing_to_compare(tmp_path):
    assert differences_of(comparison(tmp_path, {"fedbb": [0.5]}), ["f1"]) == []


def test_a_metric_that_was_not_scored_is_undefined(tmp_path):
    found = comparison(tmp_path, {method: [0.5, 0.6] for method in LEVELS})
    assert all(math.isnan(row.final.mean) for row in scores_of(found, ["luck"]))
    assert all(item.paired.spread.number == 0 for item in differences_of(found, ["luck"]))


def difference(gaps, against="FedAvg", method="FedBB"):
    paired = paired_difference(dict(enumerate(gaps)), dict.fromkeys(range(len(gaps)), 0.0))
    is_control = against == "FedAvg-scaled"
    return MethodDifference("digits", method, against, "balanced_accuracy", paired, is_control)


def test_ahead_of_both_is_said_with_its_figures():
    text = verdict([difference([0.03, 0.03]), difference([0.011, 0.011], "FedAvg-scaled")])
    assert text == (
        "FedBB is ahead of FedAvg by 3.0 points of balanced accuracy (95 % interval [+3.0, +3.0], "
        "higher on 2 of 2 seeds), and is ahead of the control FedAvg-scaled by 1.1 points (95 % "
        "interval [+1.1, +1.1], higher on 2 of 2 seeds). "
        "The size of its steps alone does not explain the gain."
    )


def test_a_gain_that_the_control_has_too_is_not_credited_to_the_method():
    gain = difference([0.02, 0.02])
    text = verdict([gain, difference([0.01, -0.01], "FedAvg-scaled")])
    assert "but shows no clear difference from the control FedAvg-scaled" in text
    assert text.endswith("These runs do not show whether more than the size of its steps matters.")
    text = verdict([gain, difference([-0.02, -0.02], "FedAvg-scaled")])
    assert text.endswith("Steps of the same size without re-weighting gain more.")


def test_a_loss_is_called_a_loss():
    text = verdict([difference([-0.02, -0.02]), difference([-0.3, -0.3], "FedAvg-scaled")])
    assert text.startswith("FedBB is behind FedAvg by 2.0 points of balanced accuracy")
    assert "gain" not in text


def test_the_control_comes_last():
    sentences = verdicts(
        [
            difference([0.1, 0.11], method="FedAvg-scaled"),
            difference([0.2, 0.21]),
            difference([0.1, 0.11], "FedAvg-scaled"),
        ]
    )
    assert [sentence.split()[0] for sentence in sentences] == ["FedBB", "FedAvg-scaled"]


def score(method, metric, final, chosen_on="validation"):
    best = [value + 0.05 for value in final]
    seeds = tuple(range(len(final)))
    return MethodScore(
        "digits", method, metric, spread_of(final), spread_of(best), chosen_on, seeds
    )


def test_a_score_table_has_a_line_a_method_and_a_column_a_metric():
    table = final_table(
        [
            score("FedAvg", "accuracy", [0.50, 0.52]),
            score("FedAvg", "f1", [0.40, 0.42]),
            score("FedBB", "accuracy", [0.60, 0.62]),
            score("FedBB", "f1", [0.61, 0.63]),
        ]
    )
    assert table.head == ("method", "accuracy", "macro F1", "seeds")
    assert table.rows == (
        ("FedAvg", "51.0 ± 1.4", "41.0 ± 1.4", "2"),
        ("FedBB", "61.0 ± 1.4", "62.0 ± 1.4", "2"),
    )


@pytest.mark.parametrize(("chosen_on", "is_rosy"), [("validation", False), ("test", True)])
def test_best_rounds_say_what_they_were_chosen_on(chosen_on, is_rosy):
    table = best_table([score("FedAvg", "accuracy", [0.5], chosen_on)])
    assert f"chosen on {chosen_on} data" in table.caption
    assert ("optimistic" in table.caption) is is_rosy
    assert table.rows == (("FedAvg", "55.0", "1"),)


def test_a_difference_table_gives_interval_and_verdict():
    (row,) = difference_table([difference([0.01, 0.02, 0.03])]).rows
    assert row[0] == "FedBB − FedAvg"
    assert row[1] == "+2.0 [−0.5, +4.5], no clear difference (3 of 3 seeds)"


def compared(root, *sketches):
    return [compare_methods(part) for part in group(read_runs(build_all(root, sketches)))]


def test_the_metric_of_the_runs_comes_first_and_decides_the_verdict(tmp_path):
    sketches = [Sketch(method, seed, level=LEVELS[method]) for method in LEVELS for seed in (0, 1)]
    (part,) = compared(tmp_path, *sketches)
    assert list(dict.fromkeys(row.metric for row in part.rows)) == [
        "balanced_accuracy",
        "accuracy",
        "f1",
    ]
    assert part.sentences[0].startswith("FedBB is ahead of FedAvg by")
    assert all("balanced accuracy" in sentence for sentence in part.sentences)


def test_a_method_alone_is_not_judged(tmp_path):
    (part,) = compared(tmp_path, Sketch("fedbb"))
    assert part.sentences == (NO_RIVAL,)
    assert "Differences" not in as_markdown("Title", [part]).replace("Differences are", "")


def test_markdown_has_all_tables_of_every_data_set(tmp_path):
    mosaic = [Sketch(method, data="digit-mosaic", task="multilabel") for method in LEVELS]
    parts = compared(tmp_path, *(Sketch(method) for method in LEVELS), *mosaic)
    text = as_markdown("A *title*", parts, ["lost_run"])
    assert text.startswith("# A \\*title\\*\n\nScores are on test data")
    assert text.count("\n## ") == 2
    assert text.count("\n| method |") == 4
    assert text.count("\n| difference |") == 2
    assert "| method | AUROC | average precision | balanced accuracy | seeds |" in text
    assert text.endswith("Left out because unfinished: lost\\_run.\n")


def test_json_holds_the_figures_and_nothing_that_is_not_json(tmp_path):
    (part,) = compared(tmp_path, Sketch("fedavg", level=0.5), Sketch("fedbb", level=0.6))
    plain = json.loads(json.dumps(as_json([part], ["x"]), allow_nan=False))
    (found,) = plain["comparisons"]
    assert plain["unfinished"] == ["x"]
    assert found["rows"][0]["final"]["deviation"] is None  # one seed
    (gap,) = (item for item in found["differences"] if item["metric"] == "f1")
    assert gap["outcome"] == Verdict.ONE_SEED
    assert {"data", "method", "against", "spread", "interval", "ahead", "behind"} <= {*gap}
    assert [run["method"] for run in found["runs"]] == ["fedavg", "fedbb"]
    assert found["runs"][0]["sha256"] == "0" * 64
