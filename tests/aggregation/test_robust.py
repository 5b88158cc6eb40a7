"""Laws of the Byzantine-robust rules: medians, trimmed means, and the clients that Krum keeps."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation import robust as rules
from fedbb.aggregation.merging import average, renormalize
from fedbb.aggregation.robust import (
    Krum,
    TrimmedMean,
    Uniform,
    coordinate_median,
    krum_scores,
    squared_distances,
)
from fedbb.records import ClientInfo, ClientUpdate, LabelCounts, ModelState
from fedbb.state import digest
from helpers.states import floats, models, state, update, updates
from reference import robust

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
NOWHERE = state([0, 0, 0])


def even(number):
    return np.full(number, 1 / number)


@st.composite
def weighed(draw, least=1, most=7):
    """Draw some clients' models and weights that sum to one."""
    drawn = draw(models(st.integers(least, most)))
    raw = draw(st.lists(st.integers(0, 9), min_size=len(drawn), max_size=len(drawn)).filter(any))
    return drawn, renormalize(np.array(raw, dtype=np.float64))


@st.composite
def besieged(draw):
    """Draw 2f + 1 or more models of which the last f are any finite numbers, and weights."""
    byzantine = draw(st.integers(1, 3))
    honest = draw(models(st.integers(byzantine + 1, byzantine + 4)))
    lies = draw(models(byzantine, elements=finite))
    raw = draw(
        st.lists(st.integers(0, 9), min_size=len(honest) + byzantine, max_size=99).filter(any)
    )
    return honest, lies, renormalize(np.array(raw[: len(honest) + byzantine], dtype=np.float64))


@given(besieged(), st.randoms(use_true_random=False))
def test_no_lie_carries_a_coordinate_beyond_the_honest_ones(drawn, random):
    honest, lies, weights = drawn
    sent = updates([*honest, *lies])
    random.shuffle(sent)
    span = np.array([floats(state(values)) for values in honest])
    for merge in (coordinate_median, TrimmedMean(len(lies))):
        merged = floats(merge(NOWHERE, sent, weights))
        assert np.all(span.min(axis=0) <= merged)
        assert np.all(merged <= span.max(axis=0))


@given(weighed(), st.integers(0, 3), st.randoms(use_true_random=False))
def test_the_order_of_clients_changes_no_bit(drawn, cut, random):
    values, weights = drawn
    cut = min(cut, (len(values) - 1) // 2)
    pairs = list(zip(updates(values), weights, strict=True))
    shuffled = random.sample(pairs, len(pairs))
    for merge in (coordinate_median, TrimmedMean(cut)):
        one, two = (
            merge(NOWHERE, [sent for sent, _ in order], np.array([share for _, share in order]))
            for order in (pairs, shuffled)
        )
        assert digest(one) == digest(two)


@given(weighed(), st.integers(0, 3))
def test_vectorized_rules_equal_the_slow_ones(drawn, cut):
    values, weights = drawn
    cut = min(cut, (len(values) - 1) // 2)
    sent = updates(values)
    columns = np.array([floats(each.state) for each in sent]).T.tolist()
    middle = floats(coordinate_median(NOWHERE, sent, weights))
    expected = [robust.median(column) for column in columns]
    np.testing.assert_allclose(middle, expected, rtol=1e-6, atol=1e-30)
    trimmed = floats(TrimmedMean(cut)(NOWHERE, sent, weights))
    expected = [robust.trimmed_mean(column, weights.tolist(), cut) for column in columns]
    np.testing.assert_allclose(trimmed, expected, rtol=1e-6, atol=1e-4)


@given(models(1, elements=finite), st.integers(1, 8), st.integers(0, 3))
def test_equal_models_join_to_that_model(values, number, cut):
    sent = updates(values * number)
    cut = min(cut, (number - 1) // 2)
    for merge in (coordinate_median, TrimmedMean(cut)):
        assert np.array_equal(floats(merge(NOWHERE, sent, even(number))), floats(state(values[0])))


@given(weighed())
def test_trimming_nothing_is_the_weighed_mean(drawn):
    values, weights = drawn
    trimmed, mean = (
        floats(merge(NOWHERE, updates(values), weights)) for merge in (TrimmedMean(0), average)
    )
    np.testing.assert_allclose(trimmed, mean, rtol=1e-6, atol=1e-4)


def test_a_trimmed_mean_worked_by_hand():
    """Of −9, 1, 2, 4, 90 are left 1, 2, 4 with weights ¼, ¼, ½ of their sum: ¼ + ½ + 2."""
    weights = np.array([0.1, 0.1, 0.1, 0.2, 0.5])
    merged = TrimmedMean(1)(NOWHERE, updates([[90], [1], [2], [4], [-9]]), weights[[4, 1, 2, 3, 0]])
    assert merged.params["weight"].item() == pytest.approx(2.75)


def test_a_median_worked_by_hand_does_not_look_at_weights():
    weights = np.array([0.97, 0.01, 0.01, 0.01])
    merged = coordinate_median(NOWHERE, updates([[90], [1], [3], [-9]]), weights)
    assert merged.params["weight"].item() == 2


def test_those_left_count_alike_if_they_weigh_nothing():
    merged = TrimmedMean(1)(NOWHERE, updates([[0], [1], [3], [9]]), np.array([0.5, 0.0, 0.0, 0.5]))
    assert merged.params["weight"].item() == 2


def test_integer_buffers_keep_their_type_and_take_the_largest_value():
    sent = [update(client, [1.0], batches=number) for client, number in enumerate((3, 9, 4))]
    for merge in (coordinate_median, TrimmedMean(1)):
        counter = merge(NOWHERE, sent, even(3)).buffers["norm.num_batches_tracked"]
        assert (counter.dtype, counter.item(), counter.shape) == (torch.int64, 9, ())


def test_a_lie_makes_no_variance_negative():
    sent = [update(client, [1.0], variance=each) for client, each in enumerate((0.1, 0.2, -1e9))]
    for merge in (coordinate_median, TrimmedMean(1)):
        assert merge(NOWHERE, sent, even(3)).buffers["norm.running_var"].item() == pytest.approx(
            0.1
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_are_kept_and_entries_without_coordinates_too(dtype):
    model = ModelState({"one": torch.tensor(0.5, dtype=dtype)}, {"none": torch.empty(0, 3)})
    sent = [ClientUpdate(client, model, 1, 1.0, 0.0) for client in range(3)]
    for merge in (coordinate_median, TrimmedMean(1)):
        assert digest(merge(model, sent, even(3))) == digest(model)


def test_large_entries_are_joined_block_by_block(monkeypatch):
    values = np.random.default_rng(0).normal(size=(5, 50))
    whole = coordinate_median(NOWHERE, updates(values), even(5))
    monkeypatch.setattr(rules, "WIDTH", 7)
    assert digest(coordinate_median(NOWHERE, updates(values), even(5))) == digest(whole)


def test_models_of_another_form_are_refused_by_name():
    other = ModelState({**NOWHERE.params, "bias": torch.zeros(2)}, NOWHERE.buffers)
    sent = [update(0, [0, 0, 0]), ClientUpdate(1, other, 1, 1.0, 0.0)]
    with pytest.raises(ValueError, match="state 2 differs from the first in 'bias'"):
        coordinate_median(NOWHERE, sent, even(2))


def test_as_many_liars_as_honest_clients_are_refused():
    with pytest.raises(ValueError, match="4 clients are too few to tolerate 2"):
        TrimmedMean(2)(NOWHERE, updates([[1.0]] * 4), even(4))


def test_a_median_asks_clients_for_nothing_and_takes_them_alike():
    infos = [ClientInfo(0, 5), ClientInfo(1, 0), ClientInfo(2, 500)]
    assert Uniform()(infos).tolist() == [0.5, 0, 0.5]
    assert Uniform().measure(LabelCounts(np.array([1.0]), np.array([2.0]), 3)) is None


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
    monkeypatch.setattr(rules, "WIDTH", 7)
    np.testing.assert_allclose(scores_of(values, 1), whole, rtol=1e-12)


def test_too_few_clients_are_refused():
    with pytest.raises(ValueError, match="6 clients are too few to tolerate 2"):
        krum_scores(np.zeros((6, 6)), byzantine=2)
    assert Krum(2).least == 7
