"""Which model serves clients best: published numbers, and laws of the summaries."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.evaluation.own_models import compare_columns, is_clear, summarize_columns

ACCURACIES, SIZES = [0.9, 0.5, 0.7], [10, 30, 60]
shares = st.lists(st.floats(0, 1), min_size=2, max_size=12)


def test_the_published_numbers():
    """By samples (9 + 15 + 42)/100 = .66; plain .7; variance of n (.04 + .04 + 0)/3 = .0266…"""
    (one,) = summarize_columns({"own": ACCURACIES}, SIZES)
    assert one.by_samples == pytest.approx(0.66)
    assert one.mean == pytest.approx(0.7)
    assert one.std == pytest.approx(0.16329932)
    assert one.std**2 == pytest.approx(0.02666667)
    assert (one.worst, one.worst_tenth, one.best_for) == (0.5, 0.5, 3)


def test_the_worst_tenth_is_a_mean():
    (one,) = summarize_columns({"own": np.arange(20) / 20}, [1] * 20)
    assert one.worst_tenth == pytest.approx(0.025)


def test_equal_columns_serve_every_client_best_and_do_not_differ():
    two = summarize_columns({"a": ACCURACIES, "b": ACCURACIES}, SIZES)
    assert [one.best_for for one in two] == [3, 3]
    (gap,) = compare_columns({"a": ACCURACIES, "b": ACCURACIES}, "a")
    assert (gap.mean, gap.low, gap.high, gap.ahead) == (0, 0, 0, 0)
    assert not gap.is_sure


def test_undefined_clients_stay_out():
    columns = {"a": [0.5, math.nan, 0.7], "b": [0.6, 0.9, math.nan]}
    one, two = summarize_columns(columns, SIZES)
    assert (one.clients, two.clients) == (2, 2)
    assert (one.best_for, two.best_for) == (1, 2)
    (gap,) = compare_columns(columns, "a")
    assert gap.clients == 1
    assert gap.mean == pytest.approx(0.1)
    assert math.isnan(gap.low)
    assert gap.to_json()["low"] is None
    (none,) = summarize_columns({"a": [math.nan]}, [3])
    assert none.clients == 0
    assert none.to_json()["mean"] is None


def test_a_gain_of_every_client_is_sure():
    gains = {"shared": [0.1] * 8, "own": [0.2, 0.3] * 4}
    (gap,) = compare_columns(gains, "shared")
    assert gap.is_sure
    assert 0.1 <= gap.low < gap.mean < gap.high <= 0.2
    assert gap.ahead == 8


@given(st.integers(1, 400), st.data())
def test_a_clear_difference_is_beyond_the_deviation_it_has(tested, data):
    """Two models of which b samples are right only under the first, c only under the second."""
    b = data.draw(st.integers(0, tested))
    c = data.draw(st.integers(0, tested - b))
    both = data.draw(st.integers(0, tested - b - c))
    one, two = (both + b) / tested, (both + c) / tested
    share, gap = (b + c) / tested, (b - c) / tested
    deviation = math.sqrt(max(share - gap * gap, 0.0) / tested)
    if is_clear(one, two, tested):
        assert abs(gap) > 1.96 * deviation - 1e-9
    assert is_clear(one, two, tested) == is_clear(two, one, tested)
    assert not is_clear(one, one, tested)


@given(shares, st.integers(0, 1000))
def test_an_interval_holds_the_mean_and_turns_with_the_sign(values, seed):
    columns = {"zero": [0.0] * len(values), "own": values}
    (gap,) = compare_columns(columns, "zero", seed)
    assert gap.low <= gap.mean + 1e-12
    assert gap.mean <= gap.high + 1e-12
    (back,) = compare_columns({"own": values, "zero": [0.0] * len(values)}, "own", seed)
    assert back.mean == pytest.approx(-gap.mean)


@given(shares)
def test_equal_sizes_make_both_means_equal(values):
    (one,) = summarize_columns({"own": values}, [7] * len(values))
    assert one.by_samples == pytest.approx(one.mean)
    assert one.worst <= one.worst_tenth <= one.mean + 1e-12
