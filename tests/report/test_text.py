"""Names and figures as readers see them."""

import math

import pytest

from fedbb.report import text
from fedbb.report.results import read_run
from fedbb.report.statistics import Interval, Spread, paired_difference
from fedbb.report.text import difference_text, interval_text, signed, verdict_clause
from helpers.run_builder import Sketch, build


def test_undefined_figures_are_a_dash_and_one_seed_has_no_margin():
    nothing, single = Spread(math.nan, math.nan, 0), Spread(0.5, math.nan, 1)
    assert text.score_text(nothing) == "–"
    assert text.score_text(single) == "50.0"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"long_tail": 0.01, "partition": {"kind": "even"}}, "set, long tail 0.01, even, 1 client"),
        ({"partition": {"kind": "column", "column": "site"}}, "set, column site, 1 client"),
    ],
)
def test_a_title_tells_what_was_done_to_the_data(tmp_path, data, expected):
    recipe = {"data": {"name": "set", **data}}
    run = read_run(build(tmp_path / "run", Sketch(data="set", clients=1, recipe=recipe)))
    assert text.data_title(run) == expected


def test_methods_are_called_as_they_call_themselves():
    assert text.method_title("fedavg-scaled") == "FedAvg-scaled"
    assert "step sizes of PNB" in text.method_description("fedavg-scaled")
    assert (text.method_title("fedwow"), text.method_description("fedwow")) == ("fedwow", "")


def test_every_metric_that_is_scored_has_a_title():
    assert text.metric_title("balanced_accuracy") == "balanced accuracy"
    assert text.metric_title("mean_luck") == "mean luck"
    assert text.capitalize("macro F1") == "Macro F1"


def difference(gaps):
    return paired_difference(dict(enumerate(gaps)), dict.fromkeys(range(len(gaps)), 0.0))


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        # t(0.975; 2) = 4.3027, deviation 0.001: reach 0.00248.
        ([0.019, 0.020, 0.021], "+2.0 [+1.8, +2.2], ahead (3 of 3 seeds)"),
        ([-0.019, -0.020, -0.021], "−2.0 [−2.2, −1.8], behind (3 of 3 seeds)"),
        # t(0.975; 1) = 12.706, deviation 0.0354: reach 0.318.
        ([0.02, -0.03], "−0.5 [−32.3, +31.3], no clear difference (1 of 2 seeds)"),
        ([0.01, 0.02, 0.03], "+2.0 [−0.5, +4.5], no clear difference (3 of 3 seeds)"),
        ([0.02], "+2.0, one seed"),
        ([0.0, 0.0], "equal"),
        ([], "not comparable"),
    ],
)
def test_a_difference_is_given_with_interval_verdict_and_seeds(gaps, expected):
    assert difference_text(difference(gaps), scale=100) == expected


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        (
            [0.019, 0.020, 0.021],
            "is ahead of FedAvg by 2.0 points (95 % interval [+1.8, +2.2], higher on 3 of 3 seeds)",
        ),
        ([-0.019, -0.020, -0.021], "is behind FedAvg by 2.0 points"),
        ([0.01, 0.02, 0.03], "shows no clear difference from FedAvg (+2.0 points, 95 % interval"),
        ([0.0, 0.0], "scores the same as FedAvg on all 2 seeds"),
        ([0.021], "differs from FedAvg by +2.1 points on one seed, which allows no verdict"),
        ([], "is not comparable with FedAvg: no seed has a score of both"),
    ],
)
def test_a_clause_names_verdict_and_evidence(gaps, expected):
    assert verdict_clause(difference(gaps), "FedAvg", "points").startswith(expected)


def test_a_difference_below_one_point_keeps_two_digits():
    assert "by 0.20 points" in verdict_clause(difference([0.002, 0.002]), "A", "points")


def test_what_is_undefined_is_a_dash():
    assert signed(math.nan) == interval_text(Interval(math.nan, math.nan)) == "–"
