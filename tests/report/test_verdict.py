"""The words say what the numbers say, whoever wins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.report.spread import spread_of
from fedbb.report.tables import Difference
from fedbb.report.verdict import Outcome, outcome, verdict, verdicts

GAPS = st.lists(st.floats(-1, 1), max_size=8)


def difference(gaps, against="FedAvg", method="FedBB"):
    return Difference(
        data="digits",
        method=method,
        against=against,
        metric="balanced_accuracy",
        spread=spread_of(gaps),
        ahead=sum(gap > 0 for gap in gaps),
        behind=sum(gap < 0 for gap in gaps),
        is_control=against == "FedAvg-scaled",
    )


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([0.01, 0.02, 0.03], Outcome.AHEAD),
        ([-0.01, -0.02, -0.03], Outcome.BEHIND),
        ([0.5, 0.5, -0.001], Outcome.TIE),  # the seeds disagree
        ([0.001, 0.001, 0.1], Outcome.TIE),  # mean 0.034, deviation 0.057
        ([0.0, 0.0], Outcome.TIE),
        ([0.0, 0.1, 0.1], Outcome.TIE),  # on one seed it is no higher
        ([0.3], Outcome.ONE_SEED),
        ([], Outcome.UNKNOWN),
    ],
)
def test_an_outcome_asks_for_agreement_and_for_more_than_the_deviation(gaps, expected):
    assert outcome(difference(gaps)) is expected


@given(GAPS)
def test_changing_sides_changes_the_outcome_and_nothing_else(gaps):
    turned = {Outcome.AHEAD: Outcome.BEHIND, Outcome.BEHIND: Outcome.AHEAD}
    side, other = outcome(difference(gaps)), outcome(difference([-gap for gap in gaps]))
    assert other is turned.get(side, side)


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=8), st.floats(0.001, 1))
def test_no_method_is_called_ahead_when_a_seed_says_otherwise(gaps, against):
    assert outcome(difference([*gaps, -against])) is not Outcome.AHEAD


def test_ahead_of_both_is_said_with_its_figures():
    text = verdict([difference([0.02, 0.03]), difference([0.01, 0.012], "FedAvg-scaled")])
    assert text == (
        "FedBB is ahead of FedAvg by 2.5 ± 0.7 points of balanced accuracy (2 of 2 seeds), and "
        "ahead of the control FedAvg-scaled by 1.1 ± 0.1 points (2 of 2 seeds). "
        "The size of its steps alone does not explain the gain."
    )


def test_a_gain_that_the_control_has_too_is_not_credited_to_the_method():
    text = verdict([difference([0.02, 0.03]), difference([0.01, -0.01], "FedAvg-scaled")])
    assert text.endswith(
        "but not clearly apart from the control FedAvg-scaled "
        "(0.00 ± 1.41 points; higher on 1 of 2 seeds). "
        "Whether more than the size of its steps is at work, these runs do not tell."
    )
    text = verdict([difference([0.02, 0.03]), difference([-0.02, -0.01], "FedAvg-scaled")])
    assert text.endswith("Steps of the same size without any re-weighting gain more.")


def test_a_loss_is_called_a_loss():
    text = verdict([difference([-0.022, -0.02]), difference([-0.3, -0.31], "FedAvg-scaled")])
    assert text.startswith("FedBB is behind FedAvg by 2.1 ± 0.1 points of balanced accuracy")
    assert "gain" not in text


def test_one_seed_proves_nothing_and_no_seed_says_so():
    assert verdict([difference([0.021])]) == (
        "FedBB is +2.1 points of balanced accuracy from FedAvg on one seed, which proves nothing."
    )
    assert "not comparable with FedAvg: no seed has a score of both" in verdict([difference([])])


def test_the_control_comes_last():
    sentences = verdicts(
        [
            difference([0.1, 0.11], method="FedAvg-scaled"),
            difference([0.2, 0.21]),
            difference([0.1, 0.11], "FedAvg-scaled"),
        ]
    )
    assert [sentence.split()[0] for sentence in sentences] == ["FedBB", "FedAvg-scaled"]
