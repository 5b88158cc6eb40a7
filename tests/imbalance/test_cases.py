"""Effective numbers and case weights: Eq. 3 and 4, their limits and their laws."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedbb.imbalance import case_weights, effective_number
from reference import pnb as reference

quick = settings(deadline=None, max_examples=40)
counts = st.integers(0, 10**7)
betas = st.one_of(st.sampled_from([0.0, 0.6, 0.99, 0.9999, 0.9999999]), st.floats(0, 1 - 1e-12))
taus = st.floats(1e-2, 1e3)
NEXT_TO_ONE = float(np.nextafter(1.0, 0.0))


def alpha(positive: float, negative: float, beta: float, tau: float = 1.0) -> float:
    return float(case_weights([positive], [negative], beta=beta, tau=tau)[0][0])


@pytest.mark.parametrize(
    ("count", "beta", "expected"),
    [
        (100, 0.9999, 99.506613),
        (5000, 0.9999, 3934.845044),
        (500, 0.99, 99.342952),
        (227, 0.9999999, 226.997435),
    ],
)
def test_effective_numbers_are_the_known_ones(count, beta, expected):
    assert effective_number(count, beta) == pytest.approx(expected, abs=5e-7)


def test_effective_number_of_three_samples_worked_by_hand():
    """(1 − 0.6³) / 0.4 = 0.784 / 0.4 = 1.96, which is also 1 + 0.6 + 0.36."""
    assert effective_number(3, 0.6) == pytest.approx(1.96, abs=1e-15)


@quick
@given(counts, betas.filter(bool), taus)
def test_effective_number_keeps_full_precision(count, beta, tau):
    exact = float(reference.effective_number(count, beta, tau))
    assert effective_number(count, beta, tau) == pytest.approx(exact, rel=1e-14, abs=0)


@pytest.mark.parametrize("scaled", [0.1, 0.2, 2.3, 22.7, 143.0, 11189.3])
def test_a_beta_of_seven_nines_is_exact_where_the_plain_form_cancels(scaled):
    exact = float(reference.effective_number(scaled, "0.9999999"))
    assert effective_number(scaled, 0.9999999) == pytest.approx(exact, rel=1e-12)
    beta, one = np.float32(0.9999999), np.float32(1)
    plain = (one - beta ** np.float32(scaled)) / (one - beta)
    assert scaled > 1 or plain == 0  # what single precision makes of small counts


@quick
@given(st.integers(1, 10**7), taus)
def test_effective_number_at_beta_zero_is_one_for_any_sample(count, tau):
    assert effective_number([0, count], 0.0, tau).tolist() == [0.0, 1.0]


def test_effective_number_saturates_at_the_inverse_of_one_minus_beta():
    np.testing.assert_allclose(effective_number([50, 10**6], 0.6), 2.5, rtol=1e-10)


def test_case_weights_of_a_cifar_client_are_the_known_ones():
    positive = np.array([976, 1632, 18, 1120, 0, 132, 0, 636, 3101, 0])
    known = [0.83916, 0.74938, 0.99663, 0.81846, 1, 0.97571, 1, 0.89074, 0.57671, 1]
    weights, _ = case_weights(positive, 7615 - positive, beta=0.9999)
    np.testing.assert_allclose(weights, known, atol=5e-6)


@pytest.mark.parametrize(
    ("positive", "samples", "expected"),
    [(4528, 4600, 0.0193), (500, 5000, 0.881)],
)
def test_case_weights_of_single_classes_are_the_known_ones(positive, samples, expected):
    digits = len(str(expected)) - 2
    assert round(alpha(positive, samples - positive, 0.9999), digits) == expected


@quick
@given(st.integers(1, 10**6), st.integers(1, 10**6), betas.filter(bool), taus)
def test_case_weights_equal_the_printed_form_where_both_cases_occur(positive, negative, beta, tau):
    found = [float(side[0]) for side in case_weights([positive], [negative], beta=beta, tau=tau)]
    assert found == pytest.approx(reference.case_weights(positive, negative, beta, tau), abs=1e-12)


@quick
@given(counts, counts, betas, taus)
def test_case_weights_are_shares_that_sum_to_one(positive, negative, beta, tau):
    of_positive, of_negative = case_weights([positive], [negative], beta=beta, tau=tau)
    assert of_positive + of_negative == 1.0
    assert 0.0 <= of_positive <= 1.0


@quick
@given(counts, counts, betas, taus)
def test_swapping_the_cases_swaps_their_weights(positive, negative, beta, tau):
    swapped = alpha(negative, positive, beta, tau)
    assert alpha(positive, negative, beta, tau) == pytest.approx(1 - swapped, abs=1e-15)


@quick
@given(st.integers(0, 10**7), betas, taus)
def test_equal_cases_weigh_one_half_each(count, beta, tau):
    assert alpha(count, count, beta, tau) == 0.5


@quick
@given(counts, counts, st.integers(1, 1000), betas, taus)
def test_more_positives_never_raise_and_more_negatives_never_lower_alpha(
    positive, negative, more, beta, tau
):
    here = alpha(positive, negative, beta, tau)
    assume(positive + negative > 0)  # a class without any case has one half by decree
    assert alpha(positive + more, negative, beta, tau) <= here + 1e-15
    assert alpha(positive, negative + more, beta, tau) >= here - 1e-15


@quick
@given(st.integers(1, 10**4), st.integers(1, 10**4), st.integers(1, 1000))
def test_alpha_falls_strictly_while_beta_has_not_vanished(positive, negative, more):
    assert alpha(positive + more, negative, 0.9999) < alpha(positive, negative, 0.9999)


@quick
@given(st.integers(1, 10**7), betas, taus)
def test_a_class_without_one_of_the_cases_takes_the_limit(count, beta, tau):
    assert alpha(0, count, beta, tau) == 1.0
    assert alpha(count, 0, beta, tau) == 0.0
    assert alpha(0, 0, beta, tau) == 0.5


@quick
@given(st.integers(1, 10**7), st.integers(1, 10**7), taus)
def test_beta_zero_re_weights_nothing(positive, negative, tau):
    assert alpha(positive, negative, 0.0, tau) == 0.5


@quick
@given(st.integers(0, 10**3), st.integers(1, 10**3), taus)
def test_beta_towards_one_is_inverse_frequency_whatever_tau(positive, negative, tau):
    expected = negative / (positive + negative)
    assert alpha(positive, negative, NEXT_TO_ONE, tau) == pytest.approx(expected, abs=1e-11)


def test_beta_towards_one_of_three_positives_in_903_worked_by_hand():
    """900 / 903 = 0.99667774."""
    assert alpha(3, 900, NEXT_TO_ONE) == pytest.approx(900 / 903, abs=1e-12)


@quick
@given(counts, counts, betas, st.integers(1, 1000))
def test_counts_and_tau_scaled_together_change_nothing(positive, negative, beta, factor):
    scaled = alpha(factor * positive, factor * negative, beta, float(factor))
    assert scaled == pytest.approx(alpha(positive, negative, beta), abs=1e-12)


@quick
@given(st.integers(100, 10**7), st.integers(100, 10**7))
def test_a_beta_of_point_six_is_saturated_and_re_weights_nothing(positive, negative):
    assert alpha(positive, negative, 0.6) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("beta", [-0.1, 1.0, 1.1, float("nan"), float("inf")])
def test_a_beta_outside_its_range_is_refused(beta):
    with pytest.raises(ValueError, match=r"beta must be in \[0, 1\), not"):
        case_weights([1], [1], beta=beta)


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan"), float("inf")])
def test_a_tau_outside_its_range_is_refused(tau):
    with pytest.raises(ValueError, match="tau must be a finite number above 0, not"):
        case_weights([1], [1], beta=0.9, tau=tau)


@pytest.mark.parametrize("count", [-1, float("nan"), float("inf")])
def test_counts_that_cannot_be_are_refused(count):
    with pytest.raises(ValueError, match="counts must be finite numbers of at least 0"):
        case_weights([1], [count], beta=0.9)
