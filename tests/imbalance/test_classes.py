"""Class shares, their spread, and the factors of the class-balanced loss."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbb.imbalance import class_factors, class_shares, effective_number, share_spread

quick = settings(deadline=None, max_examples=25)
tables = hnp.arrays(
    np.int64, st.tuples(st.integers(1, 5), st.integers(1, 8)), elements=st.integers(0, 10**6)
)


def long_tail(factor: float) -> list[int]:
    return [int(5000 * factor ** (number / 9)) for number in range(10)]


def test_shares_and_their_spread_worked_by_hand():
    """Counts 6, 3, 1: shares .6 .3 .1 around 1/3, variance (.0711 + .0011 + .0544) / 3 = .04222."""
    shares = class_shares([6, 3, 1])
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1])
    assert share_spread(shares) == pytest.approx(np.sqrt(0.38 / 9))


def test_prevalences_worked_by_hand():
    """Three labels in 20 images each: 6/20, 3/20, 1/20."""
    np.testing.assert_allclose(class_shares([6, 3, 1], 20), [0.3, 0.15, 0.05])


def test_prevalences_may_be_of_the_images_whose_label_is_known():
    np.testing.assert_allclose(class_shares([6, 3, 0], [10, 20, 0]), [0.6, 0.15, 0])


@quick
@given(tables)
def test_shares_sum_to_one_unless_nothing_was_counted(table):
    totals = class_shares(table).sum(axis=-1)
    np.testing.assert_allclose(totals, (table.sum(axis=-1) > 0).astype(float), atol=1e-12)


@quick
@given(tables)
def test_spread_is_the_population_one_and_bounded_by_a_half(table):
    shares = class_shares(table)
    spread = share_spread(shares)
    distances = (shares - shares.mean(axis=-1, keepdims=True)) ** 2
    np.testing.assert_allclose(spread**2, distances.mean(axis=-1), atol=1e-15)
    assert np.all(spread <= 0.5)


@quick
@given(tables, st.integers(1, 10**6), st.randoms(use_true_random=False))
def test_spread_of_shares_ignores_scale_and_the_order_of_classes(table, factor, random):
    order = random.sample(range(table.shape[1]), table.shape[1])
    expected = share_spread(class_shares(table))
    np.testing.assert_allclose(share_spread(class_shares(table * factor)), expected, atol=1e-12)
    np.testing.assert_allclose(share_spread(class_shares(table[:, order])), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("factor", "known"),
    [
        (0.01, [0.0506, 0.0769, 0.1211, 0.1950, 0.3188, 0.5246, 0.8683, 1.4426, 2.4092, 3.9927]),
        (0.1, [0.2923, 0.3584, 0.4442, 0.5555, 0.6997, 0.8858, 1.1266, 1.4375, 1.8415, 2.3585]),
    ],
)
def test_factors_of_the_long_tail_are_the_known_ones(factor, known):
    factors = class_factors(long_tail(factor), beta=0.9999)
    np.testing.assert_allclose(factors, known, atol=5e-5)


@quick
@given(tables.map(lambda table: table[0]), st.floats(0, 0.99999), st.floats(0.1, 100))
def test_factors_sum_to_the_number_of_classes_and_spare_absent_ones(positive, beta, tau):
    factors = class_factors(positive, beta=beta, tau=tau)
    present = positive > 0
    assert factors.sum() == pytest.approx(positive.size if present.any() else 0)
    assert np.all(factors[~present] == 0)
    products = factors[present] * effective_number(positive[present], beta, tau)
    np.testing.assert_allclose(products, np.broadcast_to(products[:1], products.shape))


def test_factors_at_beta_zero_are_one():
    np.testing.assert_array_equal(class_factors([5, 50, 500], beta=0.0), [1, 1, 1])
