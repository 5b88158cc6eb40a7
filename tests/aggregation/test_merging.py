"""FedAvg's merge: the laws of a weighted mean, to the bit where they can hold so."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from fedbb.aggregation.merging import BySamples, ClientBalanced, Weighting, average, renormalize
from fedbb.imbalance import READINGS, client_weights, count_labels
from fedbb.records import ClientInfo, ClientUpdate, LabelCounts, ModelState, Task
from fedbb.state import digest

quick = settings(deadline=None, max_examples=25)
CLASSES = 4
NAN = float("nan")
gammas = st.floats(0, 1)
readings = st.sampled_from(READINGS)


def client(entries: st.SearchStrategy, *shape: int) -> st.SearchStrategy[np.ndarray]:
    sizes = st.integers(1, 20).map(lambda samples: (samples, *shape))
    return hnp.arrays(np.float32, sizes, elements=entries)


multiclass = st.lists(client(st.sampled_from([0.0, 1.0, 2.0, 3.0])), min_size=1, max_size=6)
multilabel = st.lists(client(st.sampled_from([0.0, 1.0]), CLASSES), min_size=1, max_size=6)


def client_infos(weighting: Weighting, clients: list[LabelCounts]) -> list[ClientInfo]:
    return [
        ClientInfo(number, counts.samples, weighting.measure(counts))
        for number, counts in enumerate(clients)
    ]


def weigh(weighting: Weighting, clients: list[LabelCounts]) -> np.ndarray:
    return weighting(client_infos(weighting, clients))


@quick
@given(multiclass, gammas, readings)
def test_multiclass_cards_give_the_weights_of_the_counts(clients, gamma, reading):
    counted = [count_labels(labels, Task.MULTICLASS, CLASSES) for labels in clients]
    table = [counts.positive for counts in counted]
    expected = client_weights(table, gamma=gamma, reading=reading)
    found = weigh(ClientBalanced(gamma, reading), counted)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    by_size = client_weights(table, gamma=0.0)
    assert weigh(BySamples(), counted).tolist() == by_size.tolist()


@quick
@given(multilabel, gammas, readings)
def test_multilabel_cards_give_the_weights_of_counts_and_samples(clients, gamma, reading):
    counted = [count_labels(labels, Task.MULTILABEL, CLASSES) for labels in clients]
    table, samples = [counts.positive for counts in counted], [len(labels) for labels in clients]
    expected = client_weights(table, samples, gamma=gamma, reading=reading)
    found = weigh(ClientBalanced(gamma, reading), counted)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    by_size = client_weights(table, samples, gamma=0.0)
    assert weigh(BySamples(), counted).tolist() == by_size.tolist()


def test_prevalences_are_taken_over_the_labels_that_are_known():
    """Two of two known and one of four: shares 1 and .25, so R = .375."""
    labels = [[1, 1], [1, 0], [NAN, 0], [NAN, 0]]
    counts = count_labels(labels, Task.MULTILABEL, 2)
    assert ClientBalanced().measure(counts) == pytest.approx(0.375)


def test_a_card_holds_a_size_and_one_number_and_nothing_else_of_the_data():
    assert [field.name for field in fields(ClientInfo)] == ["client", "samples", "dispersion"]
    counts = count_labels([0, 0, 1], Task.MULTICLASS, 2)
    assert BySamples().measure(counts) is None
    assert isinstance(ClientBalanced().measure(counts), float)


@pytest.mark.parametrize("weighting", [BySamples(), ClientBalanced()])
@pytest.mark.parametrize("samples", [-1, NAN, float("inf")])
def test_a_size_that_cannot_be_is_refused(weighting, samples):
    with pytest.raises(ValueError, match="samples must be one finite number of at least 0"):
        weighting([ClientInfo(0, 5, 0.1), ClientInfo(1, samples, 0.1)])


@pytest.mark.parametrize("weighting", [BySamples(), ClientBalanced(0.5)])
def test_a_client_without_samples_weighs_nothing_and_a_federation_without_any_is_refused(weighting):
    empty = ClientInfo(0, 0, 1.0)
    assert weighting([empty, ClientInfo(1, 5, 0.1)]).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="no client holds a sample"):
        weighting([empty, empty])


@pytest.mark.parametrize("dispersion", [None, NAN, -0.1, float("inf")])
def test_a_dispersion_that_cannot_be_is_refused(dispersion):
    with pytest.raises(ValueError, match="dispersion must be one finite number of at least 0"):
        ClientBalanced()([ClientInfo(0, 5, 0.1), ClientInfo(1, 5, dispersion)])


@pytest.mark.parametrize("dispersion", [0.0, 1e-300])
def test_clients_more_even_than_the_floor_count_alike(dispersion):
    infos = [ClientInfo(0, 5, dispersion), ClientInfo(1, 500, 0.0)]
    assert ClientBalanced()(infos).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": -0.1}, r"gamma must be in \[0, 1\], not -0.1"),
        ({"gamma": 1.1}, r"gamma must be in \[0, 1\], not 1.1"),
        ({"floor": 0.0}, "floor must be a finite number above 0, not 0.0"),
        ({"reading": "std"}, r"reading must be one of share-std, .*printed, not 'std'"),
    ],
)
def test_a_hyper_parameter_outside_its_range_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ClientBalanced(**options)


def test_a_class_of_which_nothing_is_known_does_not_make_a_client_uneven():
    positive, negative = np.array([5.0, 5.0, 0.0]), np.array([15.0, 15.0, 0.0])
    assert ClientBalanced().measure(LabelCounts(positive, negative, 20)) == 0


def test_a_client_that_knows_no_label_at_all_gets_the_upper_bound():
    nothing = LabelCounts(np.zeros(3), np.zeros(3), 20)
    assert ClientBalanced().measure(nothing) == 1


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
moderate = st.floats(-1000, 1000, width=32)


def state(values: np.ndarray | Tensor, batches: int = 0) -> ModelState:
    """Return a model of one parameter, a running mean and a batch counter."""
    tensor = torch.as_tensor(values)
    buffers = {"norm.mean": tensor / 2, "norm.batches": torch.tensor(batches)}
    return ModelState({"weight": tensor}, buffers)


def updates(states: list[ModelState]) -> list[ClientUpdate]:
    return [ClientUpdate(number, each, 1, 1.0, 0.5) for number, each in enumerate(states)]


def merge(states: list[ModelState], weights: np.ndarray | list[float]) -> ModelState:
    return average(states[0], updates(states), np.asarray(weights, dtype=np.float64))


@st.composite
def clients(
    draw: st.DrawFn, elements: st.SearchStrategy[float] = moderate, most: int = 5
) -> tuple[list[np.ndarray], np.ndarray]:
    """Draw the parameters of some clients and weights that sum to one."""
    number = draw(st.integers(1, most))
    models = [draw(hnp.arrays(np.float32, 3, elements=elements)) for _ in range(number)]
    raw = draw(st.lists(st.integers(0, 100), min_size=number, max_size=number).filter(any))
    return models, renormalize(np.array(raw, dtype=np.float64))


def weight(merged: ModelState) -> np.ndarray:
    return merged.params["weight"].numpy()


@quick
@given(hnp.arrays(np.float32, 4, elements=finite), clients(most=12))
@example(np.array([-0.0, 1e-45, 3.4028235e38, -1e-40], np.float32), ([], np.array([0.1, 0.9])))
def test_equal_models_merge_to_that_model_to_the_bit(values, drawn):
    """Also −0.0, subnormal numbers and the largest there are."""
    _, weights = drawn
    model = state(values, batches=7)
    assert digest(merge([model] * len(weights), weights)) == digest(model)


@quick
@given(clients(finite))
def test_every_coordinate_stays_between_the_clients(drawn):
    models, weights = drawn
    merged = weight(merge([state(model) for model in models], weights))
    assert np.all(np.min(models, axis=0) <= merged)
    assert np.all(merged <= np.max(models, axis=0))


@quick
@given(clients(), st.floats(-10, 10, width=32), moderate)
def test_merging_commutes_with_scaling_and_shifting(drawn, factor, shift):
    models, weights = drawn
    changed = [(factor * model + shift).astype(np.float32) for model in models]
    merged = weight(merge([state(model) for model in models], weights))
    found = weight(merge([state(model) for model in changed], weights))
    np.testing.assert_allclose(found, factor * merged + shift, rtol=1e-5, atol=0.01)


@quick
@given(clients(), st.randoms(use_true_random=False))
def test_order_of_clients_does_not_matter_and_sorting_restores_the_bits(drawn, random):
    models, weights = drawn
    order = random.sample(range(len(models)), len(models))
    sent = updates([state(model) for model in models])
    merged = average(sent[0].state, sent, weights)
    shuffled = average(sent[0].state, [sent[place] for place in order], weights[order])
    np.testing.assert_allclose(weight(shuffled), weight(merged), rtol=1e-6, atol=1e-9)
    restored = sorted((sent[place] for place in order), key=lambda update: update.client)
    assert digest(average(sent[0].state, restored, weights)) == digest(merged)


@quick
@given(hnp.arrays(np.float32, 3, elements=finite))
def test_one_client_alone_gives_its_model(values):
    assert digest(merge([state(values, 3)], [1.0])) == digest(state(values, 3))


@quick
@given(clients(), st.lists(moderate, min_size=3, max_size=3))
def test_a_client_of_weight_zero_has_no_effect_on_what_is_averaged(drawn, values):
    models, weights = drawn
    states = [state(model) for model in models]
    idle = state(np.array(values, dtype=np.float32))
    without, with_idle = merge(states, weights), merge([*states, idle], [*weights, 0.0])
    for part in ("params", "buffers"):
        for name, tensor in getattr(without, part).items():
            assert torch.equal(getattr(with_idle, part)[name], tensor)


@quick
@given(clients(), hnp.arrays(np.float32, 3, elements=moderate))
def test_merging_models_is_merging_their_steps_from_the_current_one(drawn, current):
    models, weights = drawn
    merged = weight(merge([state(model) for model in models], weights))
    steps = [state((model - current).astype(np.float64)) for model in models]
    moved = current + weight(merge(steps, weights))
    np.testing.assert_allclose(merged, moved, rtol=1e-5, atol=1e-3)


@quick
@given(clients(), st.data())
def test_survivors_are_merged_as_if_they_were_the_federation(drawn, data):
    models, weights = drawn
    held = [place for place, share in enumerate(weights) if share > 0]
    alive = sorted(data.draw(st.sets(st.sampled_from(held), min_size=1)))
    states = [state(models[place]) for place in alive]
    merged = weight(merge(states, renormalize(weights[alive])))
    expected = sum(weights[place] * models[place].astype(np.float64) for place in alive)
    expected = expected / weights[alive].sum()
    np.testing.assert_allclose(merged, expected, rtol=1e-6, atol=1e-9)


def test_a_weighted_mean_worked_by_hand():
    """¼·(1, 2) + ¾·(5, −2) = (4, −1); the buffers hold half of that."""
    merged = merge(
        [state(torch.tensor([1.0, 2.0])), state(torch.tensor([5.0, -2.0]))], [0.25, 0.75]
    )
    assert merged.params["weight"].tolist() == [4, -1]
    assert merged.buffers["norm.mean"].tolist() == [2, -0.5]


def test_integer_buffers_keep_their_type_and_take_the_largest_value():
    """A weighted sum of counters would be cut off to zero."""
    merged = merge([state(torch.ones(2), batches) for batches in (3, 9, 4)], [0.1, 0.1, 0.8])
    counter = merged.buffers["norm.batches"]
    assert (counter.dtype, counter.item(), counter.shape) == (torch.int64, 9, ())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_are_kept_and_sums_are_made_in_double_precision(dtype):
    """Ten times 0.1·θ would drift in half precision; here θ comes back to the bit."""
    model = state(torch.tensor([1.0, 0.333, 1000.0], dtype=dtype))
    merged = merge([model] * 10, [0.1] * 10)
    assert merged.params["weight"].dtype == dtype
    if dtype is torch.float64:
        torch.testing.assert_close(merged.params["weight"], model.params["weight"])
    else:
        assert digest(merged) == digest(model)


def test_huge_numbers_do_not_overflow_in_the_sum():
    merged = merge([state(torch.tensor([3e38, -3e38]))] * 3, [1 / 3] * 3)
    assert torch.isfinite(merged.params["weight"]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("number", [1, 2])
def test_changing_an_update_after_the_merge_changes_nothing(dtype, number):
    states = [state(torch.ones(3, dtype=dtype), batches=5) for _ in range(number)]
    merged = merge(states, [1 / number] * number)
    before = digest(merged)
    for each in states:
        for tensor in (*each.params.values(), *each.buffers.values()):
            tensor.mul_(-2)
    assert digest(merged) == before


@quick
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30).filter(any), st.data())
def test_weights_of_any_chosen_clients_are_scaled_to_sum_to_one(values, data):
    weights = np.array(values)
    some = st.sets(st.sampled_from(range(len(values))), min_size=1)
    chosen = weights[sorted(data.draw(some))]
    shares = renormalize(chosen)
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    if chosen.sum() > 0:
        np.testing.assert_allclose(shares * chosen.sum(), chosen, rtol=1e-9, atol=1e-300)


def test_chosen_clients_that_all_weigh_nothing_count_alike():
    assert renormalize(np.zeros(4)).tolist() == [0.25] * 4


@pytest.mark.parametrize("clients", range(1, 12))
def test_clients_that_are_just_enough_for_the_bound_count_equally(clients):
    weights = np.array([0.8, *[0.1] * (clients - 1)])
    expected = np.full(clients, 1.0 / clients)
    np.testing.assert_array_equal(renormalize(weights, 1.0 / clients), expected)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=30), st.floats(0.01, 1.0))
def test_shares_sum_to_one_respect_the_most_and_keep_their_order(weights, most):
    found = np.array(weights)
    shares = renormalize(found, most)
    assert shares.sum() == pytest.approx(1.0)
    assert shares.max() <= max(most, 1 / len(found)) * (1 + 1e-9)
    assert np.all(np.diff(shares[np.argsort(found)]) >= -1e-12)


def test_weights_below_the_most_are_only_scaled():
    weights = np.array([0.1, 0.3, 0.2])
    assert renormalize(weights, 1.0) == pytest.approx(weights / weights.sum())


def test_what_a_bound_cuts_off_goes_to_those_that_weigh_nothing_if_there_is_nobody_else():
    assert renormalize(np.array([1.0, 0.0, 0.0]), 0.5).tolist() == [0.5, 0.25, 0.25]
