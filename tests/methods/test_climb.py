"""CLIMB: published multipliers and weights, and laws of both."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.methods.climb import LossBalance, balance_weights, move_multipliers

THIRDS = np.full(3, 1 / 3)
EVEN = {0: 1.0, 1: 1.0, 2: 1.0}


def moved(multipliers, losses, shares=None, spec=LossBalance(2.0, 0.1)):  # noqa: B008
    losses = dict(enumerate(losses)) if isinstance(losses, tuple) else losses
    return move_multipliers(np.array(multipliers, float), losses, shares or EVEN, spec)


def test_two_rounds_have_the_published_values():
    first = moved((0, 0, 0), (0.2, 0.5, 1.4))
    assert first.tolist() == pytest.approx([0, 0, 0.4])
    assert balance_weights(THIRDS, first).tolist() == pytest.approx(
        [0.288889, 0.288889, 0.422222], abs=1e-6
    )
    second = moved(first, (0.3, 0.6, 0.9))
    assert second.tolist() == pytest.approx([0, 0, 0.533333], abs=1e-6)
    assert balance_weights(THIRDS, second).tolist() == pytest.approx(
        [0.274074, 0.274074, 0.451852], abs=1e-6
    )
    # Clients 0 and 2 alone after the first round: the weights are renormalized.
    two = balance_weights(THIRDS, first)[[0, 2]]
    assert (two / two.sum()).tolist() == pytest.approx([0.40625, 0.59375])


def test_sizes_count_in_the_mean_loss_and_in_the_weights():
    shares = np.array([0.5, 0.3, 0.2])
    found = moved((0, 0, 0), (0.2, 0.5, 1.4), dict(enumerate(shares)))
    assert found.tolist() == pytest.approx([0, 0, 0.513333], abs=1e-6)
    assert balance_weights(shares, found).tolist() == pytest.approx(
        [0.448667, 0.2692, 0.282133], abs=1e-6
    )


def test_factors_below_zero_are_zero():
    weights = balance_weights(THIRDS, np.array([0.0, 0.0, 6.0]))
    assert (weights / weights.sum()).tolist() == [0, 0, 1]


def test_no_multipliers_leave_the_weights_to_the_bit():
    assert balance_weights(THIRDS, np.zeros(3)) is THIRDS
    assert moved((0, 0, 0), (0.7, 0.7, 0.7)).tolist() == [0, 0, 0]
    assert moved((0.5, 1, 2), {}).tolist() == [0.5, 1, 2]


@given(
    losses=st.lists(st.floats(0, 100), min_size=3, max_size=3),
    before=st.lists(st.floats(0, 5), min_size=3, max_size=3),
)
def test_multipliers_stay_in_their_range_and_those_of_absent_clients_as_they_were(losses, before):
    after = moved(before, {0: losses[0], 2: losses[2]})
    assert after[1] == before[1]
    assert np.all((after >= 0) & (after <= 5))
    weights = balance_weights(THIRDS, after)
    assert np.all(weights >= 0)
    assert weights.sum() > 0


@given(
    losses=st.lists(st.floats(0, 10), min_size=3, max_size=3),
    before=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    order=st.permutations(range(3)),
)
def test_permuting_clients_permutes_their_weights(losses, before, order):
    weights = balance_weights(THIRDS, moved(before, tuple(losses)))
    turned = moved([before[k] for k in order], tuple(losses[k] for k in order))
    assert balance_weights(THIRDS, turned).tolist() == pytest.approx(weights[order].tolist())


@given(
    losses=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    before=st.lists(st.floats(0, 0.3), min_size=3, max_size=3),
)
def test_a_larger_loss_never_lowers_a_weight_as_long_as_none_is_cut_to_zero(losses, before):
    weights = balance_weights(THIRDS, moved(before, tuple(losses)))
    more = balance_weights(THIRDS, moved(before, (losses[0] + 1, losses[1], losses[2])))
    assert weights.min() > 0
    assert more[0] / more.sum() >= weights[0] / weights.sum() - 1e-9


@pytest.mark.parametrize("options", [{"lr": -1}, {"tolerance": float("nan")}, {"most": -0.1}])
def test_a_bad_value_is_refused(options):
    with pytest.raises(ValueError, match="must be a finite number of at least 0"):
        LossBalance(**options)
