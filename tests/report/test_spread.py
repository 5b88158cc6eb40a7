"""Mean and deviation over seeds against the standard library, and where they are undefined."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.report.spread import spread_columns, spread_of

SCORES = st.lists(st.floats(0, 1), min_size=2, max_size=12)


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
