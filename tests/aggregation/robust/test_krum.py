"""Krum: whom it keeps, and that no far-away liar is among them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation.robust import coordinatewise as coordinates
from fedbb.aggregation.robust.krum import Krum, krum_scores, squared_distances
from fedbb.records import ModelState
from helpers.states import floats, models, state
from reference import robust


def scores_of(values, byzantine):
    return krum_scores(squared_distances([state(each) for each in values]), byzantine)


@st.composite
def crowds(draw):
    """Draw 2f + 3 or more models, and f."""
    byzantine = draw(st.integers(0, 3))
    return draw(models(st.integers(2 * byzantine + 3, 2 * byzantine + 5))), byzantine


@given(crowds())
def test_scores_equal_the_slow_ones(drawn):
    values, byzantine = drawn
    expected = robust.krum_scores([floats(state(each)).tolist() for each in values], byzantine)
    np.testing.assert_allclose(scores_of(values, byzantine), expected, rtol=1e-9, atol=1e-9)


@given(crowds(), st.randoms(use_true_random=False))
def test_scores_go_with_their_clients_to_the_bit(drawn, random):
    values, byzantine = drawn
    order = random.sample(range(len(values)), len(values))
    shuffled = scores_of([values[place] for place in order], byzantine)
    assert np.array_equal(shuffled, scores_of(values, byzantine)[order])


@given(st.integers(1, 3), st.integers(0, 3), st.floats(1e3, 1e30), st.integers(0, 99))
def test_liars_far_away_are_never_kept(byzantine, more, distance, seed):
    """Also if they stand together: f are too few to be each other's n − f − 2 nearest."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(size=(byzantine + 3 + more, 3))
    together = rng.normal(size=3)
    lies = distance * (together / np.linalg.norm(together)) + np.zeros((byzantine, 1))
    scores = scores_of([*honest, *lies], byzantine)
    for krum in (Krum(byzantine), Krum(byzantine, many=True)):
        assert krum(scores).max() < len(honest)
    assert Krum(byzantine, many=True)(scores).tolist() == list(range(len(honest)))


@given(crowds())
def test_krum_keeps_the_best_and_multi_krum_all_but_f(drawn):
    values, byzantine = drawn
    scores = scores_of(values, byzantine)
    (best,) = Krum(byzantine)(scores)
    kept = Krum(byzantine, many=True)(scores)
    assert scores[best] == scores.min()
    assert best in kept
    assert len(kept) == len(values) - byzantine
    assert scores[kept].max() <= min(np.delete(scores, kept), default=np.inf)


@given(crowds())
def test_without_liars_multi_krum_keeps_everybody(drawn):
    values, _ = drawn
    assert Krum(0, many=True)(scores_of(values, 0)).tolist() == list(range(len(values)))


def test_of_equal_clients_the_lowest_are_kept():
    scores = scores_of([[1.0, 2.0, 3.0]] * 5, byzantine=1)
    assert scores.tolist() == [0.0] * 5
    assert Krum(1)(scores).tolist() == [0]
    assert Krum(1, many=True)(scores).tolist() == [0, 1, 2, 3]


def test_distances_tell_nearly_equal_models_far_from_zero_apart():
    """By products, 10⁸ + 0² − 2·… would lose all of 10⁻⁶."""
    near = ModelState({"x": torch.tensor([1e4, 1e4], dtype=torch.float64)}, {})
    far = ModelState({"x": torch.tensor([1e4, 1e4 + 1e-6], dtype=torch.float64)}, {})
    assert squared_distances([near, far])[0, 1] == pytest.approx(1e-12, rel=1e-3)


def test_distances_look_at_float_buffers_and_not_at_counters():
    one, two = state([1, 2, 3], batches=1), state([1, 2, 3], variance=3.0, batches=900)
    assert squared_distances([one, two]).tolist() == [[0, 4], [4, 0]]


def test_large_models_are_compared_block_by_block(monkeypatch):
    values = np.random.default_rng(0).normal(size=(5, 50))
    whole = scores_of(values, 1)
    monkeypatch.setattr(coordinates, "WIDTH", 7)
    np.testing.assert_allclose(scores_of(values, 1), whole, rtol=1e-12)


def test_too_few_clients_are_refused():
    with pytest.raises(ValueError, match="6 clients are too few to tell 2 liars"):
        krum_scores(np.zeros((6, 6)), byzantine=2)
    assert Krum(2).least == 7
