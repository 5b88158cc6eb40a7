"""The words say what the numbers say."""

import math

import pytest

from fedbb.report.prose import difference_text, interval_text, signed, verdict_clause
from fedbb.report.statistics import Interval, paired_difference


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
