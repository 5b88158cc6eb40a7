"""Student's interval agrees with one found by adding up the density."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.report.interval import Interval, interval_of


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


def test_an_undefined_value_is_left_out():
    assert interval_of([1.0, math.nan, 3.0]) == interval_of([1.0, 3.0])


def test_equal_values_leave_no_doubt():
    assert interval_of([2.0, 2.0, 2.0]) == Interval(2.0, 2.0)
    assert interval_of([2.0, 2.0]).excludes_zero


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_the_interval_turns_with_its_values(values):
    interval, turned = interval_of(values), interval_of([-value for value in values])
    assert turned.low == pytest.approx(-interval.high)
    assert turned.high == pytest.approx(-interval.low)
