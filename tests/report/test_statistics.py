"""Spread, interval, paired difference, verdict, head and tail, against slow references."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from fedbb.report.statistics import (
    Interval,
    Verdict,
    auroc_interval,
    class_order,
    head_and_tail,
    interval_of,
    paired_difference,
    spread_columns,
    spread_of,
    wilson_interval,
)

SCORES = st.lists(st.floats(0, 1), min_size=2, max_size=12)
GAPS = st.lists(st.floats(-1, 1), max_size=8)


def difference(gaps):
    """Return the paired difference of scores that differ by these gaps."""
    return paired_difference(dict(enumerate(gaps)), dict.fromkeys(range(len(gaps)), 0.0))


@given(SCORES)
def test_the_spread_is_that_of_the_standard_library(values):
    spread = spread_of(values)
    assert spread.mean == pytest.approx(statistics.fmean(values))
    assert spread.deviation == pytest.approx(statistics.stdev(values), abs=1e-9)
    assert spread.number == len(values)


@given(SCORES, st.integers(0, 12))
def test_undefined_values_change_nothing_but_are_not_counted(values, place):
    holed = [*values[:place], math.nan, *values[place:]]
    assert spread_of(holed).number == len(values)
    assert spread_of(holed).mean == pytest.approx(spread_of(values).mean)
    assert spread_of(holed).deviation == pytest.approx(spread_of(values).deviation, abs=1e-12)


def test_one_value_has_no_deviation():
    spread = spread_of([0.4])
    assert (spread.mean, spread.number) == (0.4, 1)
    assert math.isnan(spread.deviation)


@pytest.mark.parametrize("values", [[], [math.nan], [math.nan, math.nan]])
def test_no_value_has_no_mean(values):
    spread = spread_of(values)
    assert math.isnan(spread.mean)
    assert math.isnan(spread.deviation)
    assert spread.number == 0


def test_columns_are_worked_out_apart():
    values = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])
    means, deviations = spread_columns(values)
    np.testing.assert_array_equal(means, [2.0, 5.0, np.nan])
    np.testing.assert_allclose(deviations, [math.sqrt(2), np.nan, np.nan])


def student_share(reach, freedom):
    """Return the share of Student's t within ± reach, by the midpoint rule on its density."""
    places = (np.arange(200_000) + 0.5) / 200_000 * reach
    factor = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2)
    factor /= math.sqrt(freedom * math.pi)
    density = factor * (1 + places**2 / freedom) ** (-(freedom + 1) / 2)
    return 2 * float(density.sum()) * reach / 200_000


@pytest.mark.parametrize("number", [2, 3, 5, 10, 30])
def test_the_interval_spans_95_percent_of_students_distribution(number):
    values = np.arange(number) ** 2 / 10
    interval = interval_of(values)
    error = values.std(ddof=1) / math.sqrt(number)
    assert (interval.low + interval.high) / 2 == pytest.approx(values.mean())
    reach = (interval.high - interval.low) / 2 / error
    assert student_share(reach, number - 1) == pytest.approx(0.95, abs=1e-6)


def test_two_seeds_by_hand():
    # The 97.5 % point of Student's t with one degree of freedom is tan(0.475 π) = 12.706.
    interval = interval_of([1.0, 3.0])
    assert interval.low == pytest.approx(2 - math.tan(0.475 * math.pi))
    assert interval.high == pytest.approx(2 + math.tan(0.475 * math.pi))


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [math.nan, math.nan]])
def test_fewer_than_two_values_have_no_interval(values):
    interval = interval_of(values)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
    assert not interval.excludes_zero


def test_an_undefined_value_is_left_out_of_the_interval():
    assert interval_of([1.0, math.nan, 3.0]) == interval_of([1.0, 3.0])


def test_equal_values_have_an_interval_of_one_point():
    assert interval_of([2.0, 2.0, 2.0]) == Interval(2.0, 2.0)
    assert interval_of([2.0, 2.0]).excludes_zero


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_the_interval_turns_with_its_values(values):
    interval, turned = interval_of(values), interval_of([-value for value in values])
    assert turned.low == pytest.approx(-interval.high)
    assert turned.high == pytest.approx(-interval.low)


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        # Mean 0.02, deviation 0.01: the interval reaches 4.303 · 0.01 / √3 = 0.0248 to either side.
        ([0.01, 0.02, 0.03], Verdict.UNCLEAR),
        # Deviation 0.001: it reaches 0.0025.
        ([0.019, 0.020, 0.021], Verdict.AHEAD),
        ([-0.019, -0.020, -0.021], Verdict.BEHIND),
        ([0.5, 0.5, -0.001], Verdict.UNCLEAR),
        ([0.0, 0.0], Verdict.EQUAL),
        ([0.02, 0.03], Verdict.UNCLEAR),
        ([0.02, 0.02], Verdict.AHEAD),
        ([0.3], Verdict.ONE_SEED),
        ([0.0], Verdict.ONE_SEED),
        ([], Verdict.NOT_COMPARABLE),
        ([math.nan], Verdict.NOT_COMPARABLE),
    ],
)
def test_a_verdict_asks_for_an_interval_that_excludes_zero(gaps, expected):
    assert difference(gaps).verdict is expected


def test_one_seed_against_the_others_does_not_decide_by_itself():
    gaps = [0.10, 0.11, 0.12, 0.10, 0.11, 0.12, 0.10, 0.11, -0.001]
    found = difference(gaps)
    assert (found.verdict, found.ahead, found.behind) == (Verdict.AHEAD, 8, 1)


@given(GAPS)
def test_exchanging_the_scores_exchanges_the_verdict(gaps):
    turned = {Verdict.AHEAD: Verdict.BEHIND, Verdict.BEHIND: Verdict.AHEAD}
    one, other = difference(gaps).verdict, difference([-gap for gap in gaps]).verdict
    assert other is turned.get(one, one)


@given(GAPS)
def test_the_verdict_agrees_with_the_interval(gaps):
    found = difference(gaps)
    decided = found.verdict in (Verdict.AHEAD, Verdict.BEHIND)
    assert decided is found.interval.excludes_zero


def test_only_seeds_that_both_have_are_paired():
    found = paired_difference({0: 0.5, 1: 0.9, 2: math.nan}, {1: 0.8, 2: 0.7, 3: 0.1})
    assert found.seeds == (1,)
    assert found.spread.mean == pytest.approx(0.1)


COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=30)


@given(COUNTS)
def test_head_and_tail_are_thirds_by_frequency(counts):
    head, tail = (part.tolist() for part in head_and_tail(counts))
    ordered = sorted(range(len(counts)), key=lambda index: -counts[index])
    third = max(1, len(counts) // 3)
    if len(set(counts)) == 1:
        assert head == tail == []
    else:
        assert (head, tail) == (ordered[:third], ordered[-third:])
    assert class_order(counts).tolist() == ordered


@pytest.mark.parametrize("counts", [[], [7], [3, 3, 3], [math.nan] * 6])
def test_without_known_and_different_counts_there_is_no_head_and_no_tail(counts):
    assert [part.size for part in head_and_tail(counts)] == [0, 0]


def test_of_two_classes_one_is_the_head_and_one_the_tail():
    assert [part.tolist() for part in head_and_tail([1, 9])] == [[1], [0]]


@pytest.mark.parametrize(("hits", "cases"), [(0, 5), (3, 3), (8, 10), (50, 400)])
def test_wilson_interval_is_scipys(hits, cases):
    expected = binomtest(hits, cases).proportion_ci(0.95, method="wilson")
    found = wilson_interval(hits / cases, cases)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_auroc_interval_of_hanley_and_mcneil():
    # θ = 0.8, 20 positive and 30 negative cases: Q1 = 0.8/1.2 = 0.6667, Q2 = 1.28/1.8 = 0.7111;
    # variance (0.16 + 19·0.026667 + 29·0.071111)/600 = 0.0045481, standard error 0.067440.
    found = auroc_interval(0.8, 20, 30)
    assert (found.high - found.low) / (2 * 1.959964) == pytest.approx(0.067440, abs=1e-5)


def test_auroc_interval_covers_the_true_area():
    # Two normal distributions a distance d apart have the area Φ(d/√2).
    rng, truth, covered = np.random.default_rng(0), 0.7602, 0
    for _ in range(300):
        scores = np.concatenate([rng.normal(1, 1, 40), rng.normal(0, 1, 80)])
        labels = np.repeat([1, 0], [40, 80])
        found = auroc_interval(float(roc_auc_score(labels, scores)), 40, 80)
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / 300 <= 0.985


def test_no_cases_have_no_interval():
    for found in (wilson_interval(float("nan"), 0), auroc_interval(0.5, 0, 10)):
        assert math.isnan(found.low)
        assert math.isnan(found.high)


def test_intervals_stay_within_bounds():
    assert wilson_interval(1.0, 3).high == 1.0
    assert auroc_interval(0.99, 2, 2).high == 1.0
