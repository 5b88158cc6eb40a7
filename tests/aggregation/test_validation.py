"""How far an update went, held to a bound; and what cannot be a trained model."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation.merging import clip_update, update_norm, validate_update
from fedbb.records import ModelState
from fedbb.state import digest
from helpers.states import floats, models, moderate, state

START = state([1.0, 2.0, 3.0])
bounds = st.floats(0.01, 1e4)


@given(models(2), bounds)
def test_what_is_clipped_went_the_same_way_and_no_further(drawn, most):
    start, end = (state(values) for values in drawn)
    clipped = clip_update(start, end, most)
    whole, part = floats(end) - floats(start), floats(clipped) - floats(start)
    share = min(1.0, most / max(update_norm(start, end), 1e-9))
    np.testing.assert_allclose(part, share * whole, rtol=1e-4, atol=1e-3)
    assert update_norm(start, clipped) <= most * (1 + 1e-5) + 1e-3


@given(models(2), bounds)
def test_what_keeps_within_the_bound_is_left_as_it_is(drawn, most):
    start, end = (state(values) for values in drawn)
    if update_norm(start, end) <= most:
        assert digest(clip_update(start, end, most)) == digest(end)


def test_a_clip_worked_by_hand():
    """(0, 0) → (6, 8) is 10 long; 5 is half the way."""
    start = ModelState({"w": torch.zeros(2)}, {"mean": torch.zeros(1), "n": torch.tensor(1)})
    end = ModelState(
        {"w": torch.tensor([6.0, 8.0])}, {"mean": torch.tensor([4.0]), "n": torch.tensor(7)}
    )
    assert update_norm(start, end) == 10
    clipped = clip_update(start, end, 5.0)
    assert clipped.params["w"].tolist() == [3, 4]
    assert clipped.buffers["mean"].item() == 2
    assert clipped.buffers["n"].item() == 7


def test_buffers_alone_can_go_too_far():
    far = state([1.0, 2.0, 3.0], variance=101.0)
    assert update_norm(START, far) == 100
    assert clip_update(START, far, 1.0).buffers["norm.running_var"].item() == pytest.approx(2.0)


def test_the_largest_floats_are_measured_and_clipped():
    far = state([3e38, -3e38, 3e38])
    clipped = clip_update(START, far, 2.0)
    assert math.isfinite(update_norm(START, far))
    assert update_norm(START, clipped) == pytest.approx(2.0, rel=1e-5)


@given(st.lists(moderate, min_size=3, max_size=3), st.floats(0, 1e6))
def test_a_finite_model_of_the_same_form_is_sound(values, variance):
    assert validate_update(START, state(values, variance=variance, batches=9)) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"weight": torch.zeros(1)}, "differs from ours in 'weight'"),
        ({"weight": torch.zeros(3, 1)}, "differs from ours in 'weight'"),
        ({"weight": torch.zeros(3).double()}, "differs from ours in 'weight'"),
        ({"extra": torch.zeros(3)}, "differs from ours in 'extra'"),
        ({"weight": torch.tensor([0.0, math.nan, 0.0])}, "not finite"),
        ({"weight": torch.tensor([0.0, math.inf, 0.0])}, "not finite"),
        ({"weight": torch.tensor([1.0, 7.0, 3.0])}, "norm of its update is 5, and 4.5 is allowed"),
    ],
)
def test_what_cannot_count_is_told_why(changed, words):
    sent = ModelState({**START.params, **changed}, START.buffers)
    assert words in validate_update(START, sent, 4.5)


def test_a_missing_entry_a_negative_variance_and_an_endless_way_are_told():
    lacking = ModelState({"weight": START.params["weight"]}, START.buffers)
    assert "differs from ours in 'bias'" in validate_update(START, lacking)
    assert "negative variance" in validate_update(START, state([1, 2, 3], variance=-0.1))
    one, two = (
        ModelState({"x": torch.tensor([value], dtype=torch.float64)}, {})
        for value in (-1e200, 1e200)
    )
    assert "overflows" in validate_update(one, two)
