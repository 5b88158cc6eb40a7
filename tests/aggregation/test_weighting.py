"""Weights at the server, from cards alone, against those from the counts themselves."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbb.aggregation.weighting import BySamples, ClientBalanced, Weighting
from fedbb.imbalance.clients import READINGS, client_weights
from fedbb.imbalance.counts import count_labels
from fedbb.records import ClientInfo, LabelCounts, Task

quick = settings(deadline=None, max_examples=50)
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
