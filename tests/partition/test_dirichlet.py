import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import DataError
from fedbb.partition.dirichlet import Skew, label_skew, quantity_skew

CIFAR10_LABELS = np.repeat(np.arange(10), 5000)
CONCENTRATIONS = st.sampled_from([1e-300, 0.001, 0.05, 0.5, 1.0, 100.0, 1e6, 1e308])


def slow_label_skew(labels, clients, concentration, seed):
    """Lists of lists, class by class, as the public codes have it."""
    rng = np.random.RandomState(seed)
    smallest = 0
    while smallest < 10:
        held = [[] for _ in range(clients)]
        for label in range(labels.max() + 1):
            places = np.where(labels == label)[0]
            rng.shuffle(places)
            shares = rng.dirichlet(np.repeat(concentration, clients))
            full = [len(own) >= len(labels) / clients for own in held]
            shares = np.array([0 if f else s for f, s in zip(full, shares, strict=True)])
            cuts = (np.cumsum(shares / shares.sum()) * len(places)).astype(int)[:-1]
            parts = np.split(places, cuts)
            held = [own + part.tolist() for own, part in zip(held, parts, strict=True)]
        smallest = min(len(own) for own in held)
    return [sorted(own) for own in held]


def test_label_skew_reproduces_the_split_of_the_public_codes() -> None:
    owners = label_skew(CIFAR10_LABELS, Skew(10, 0.1, seed=0))
    sizes = [7615, 5142, 7498, 865, 2731, 6130, 6415, 3034, 6091, 4479]
    assert np.bincount(owners).tolist() == sizes
    first = np.bincount(CIFAR10_LABELS[owners == 0], minlength=10)
    assert first.tolist() == [976, 1632, 18, 1120, 0, 132, 0, 636, 3101, 0]


@pytest.mark.parametrize(
    ("seed", "sizes"), [(0, [209, 535, 16, 21, 85555]), (1996, [78406, 626, 56, 7223, 25])]
)
def test_quantity_skew_reproduces_the_split_of_the_public_code(seed, sizes) -> None:
    assert np.bincount(quantity_skew(86336, Skew(5, 0.1, seed=seed))).tolist() == sizes


@given(
    labels=st.lists(st.integers(0, 4), min_size=80, max_size=160),
    clients=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_label_skew_equals_a_slow_reference(labels, clients, seed) -> None:
    array = np.array(labels)
    owners = label_skew(array, Skew(clients, 1.0, seed=seed))
    held = [np.flatnonzero(owners == client).tolist() for client in range(clients)]
    assert held == slow_label_skew(array, clients, 1.0, seed)


@given(
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=120),
    clients=st.integers(1, 12),
    concentration=CONCENTRATIONS,
    minimum=st.integers(1, 10),
)
def test_label_skew_keeps_its_minimum_or_refuses(labels, clients, concentration, minimum) -> None:
    skew = Skew(clients, concentration, minimum)
    try:
        owners = label_skew(np.array(labels), skew)
    except DataError:
        return
    sizes = np.bincount(owners, minlength=clients)
    assert len(owners) == len(labels)
    assert len(sizes) == clients
    assert sizes.min() >= minimum


@given(
    samples=st.integers(1, 500),
    clients=st.integers(1, 8),
    concentration=CONCENTRATIONS,
    seed=st.integers(0, 9),
)
def test_quantity_skew_keeps_its_minimum_or_refuses(samples, clients, concentration, seed) -> None:
    skew = Skew(clients, concentration, 3, seed)
    try:
        owners = quantity_skew(samples, skew)
    except DataError:
        return
    sizes = np.bincount(owners, minlength=clients)
    assert len(owners) == samples
    assert len(sizes) == clients
    assert sizes.min() >= 3
    assert np.array_equal(owners, quantity_skew(samples, skew))


def test_a_seed_decides_the_split_and_another_seed_gives_another() -> None:
    first = label_skew(CIFAR10_LABELS, Skew(10, 0.5, seed=3))
    assert np.array_equal(first, label_skew(CIFAR10_LABELS, Skew(10, 0.5, seed=3)))
    assert not np.array_equal(first, label_skew(CIFAR10_LABELS, Skew(10, 0.5, seed=4)))


def test_the_smaller_the_concentration_the_fewer_classes_a_client_has() -> None:
    def classes_per_client(concentration):
        owners = label_skew(CIFAR10_LABELS, Skew(10, concentration))
        return np.mean([len(np.unique(CIFAR10_LABELS[owners == client])) for client in range(10)])

    few, more, all_of_them = (classes_per_client(value) for value in (0.01, 0.3, 1e6))
    assert few < more < all_of_them == 10


@pytest.mark.parametrize("concentration", [0.001, 1e-300])
def test_a_vanishing_concentration_gives_each_class_to_one_client(concentration) -> None:
    owners = label_skew(CIFAR10_LABELS, Skew(10, concentration))
    per_class = owners.reshape(10, 5000)
    assert (np.ptp(per_class, axis=1) == 0).all()
    # A client with one whole class holds its average and is closed, so no client gets two.
    assert sorted(per_class[:, 0].tolist()) == list(range(10))


@pytest.mark.parametrize("concentration", [1e6, 1e300, 1.7e308])
def test_a_vast_concentration_gives_clients_alike(concentration) -> None:
    skew = Skew(10, concentration)
    assert np.ptp(np.bincount(label_skew(CIFAR10_LABELS, skew))) <= 40
    assert np.ptp(np.bincount(quantity_skew(50000, skew))) <= 40


@pytest.mark.parametrize(
    "deal", [lambda skew: label_skew(CIFAR10_LABELS, skew), lambda skew: quantity_skew(50000, skew)]
)
@pytest.mark.parametrize("concentration", [1e-300, 0.001])
def test_a_split_that_cannot_be_had_ends_soon_and_says_what_to_change(deal, concentration) -> None:
    start = time.monotonic()
    with pytest.raises(DataError, match=r"raise concentration, lower min_samples, take fewer"):
        deal(Skew(30, concentration))
    assert time.monotonic() - start < 20


def test_a_thousand_clients_of_a_hundred_thousand_samples_take_little_time() -> None:
    labels = np.arange(100_000) % 100
    start = time.monotonic()
    owners = label_skew(labels, Skew(1000, 0.5))
    assert time.monotonic() - start < 5
    assert np.bincount(owners).min() >= 10


def test_a_client_that_rounding_leaves_short_is_not_let_pass() -> None:
    # Ten equal shares of 100 are ten each, yet the rounded sums 0.1 + 0.1 + … cut off one of them.
    with pytest.raises(DataError, match="fewer than 10 of 100 samples"):
        quantity_skew(100, Skew(10, 1e100))


@pytest.mark.parametrize(
    ("skew", "message"),
    [
        (Skew(0, 0.5), "clients is 0"),
        (Skew(5, 0.0), "concentration is 0"),
        (Skew(5, -1.0), "concentration is -1"),
        (Skew(5, float("nan")), "concentration is nan"),
        (Skew(5, float("inf")), "concentration is inf"),
        (Skew(5, 0.5, min_samples=0), "min_samples is 0"),
        (Skew(5, 0.5, seed=-1), "seed is -1"),
        (Skew(11, 0.5), "11 clients of at least 10 samples need 110; there are 100"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(skew, message) -> None:
    with pytest.raises(DataError, match=message):
        label_skew(np.arange(100) % 4, skew)
    with pytest.raises(DataError, match=message):
        quantity_skew(100, skew)


def test_a_negative_label_is_refused() -> None:
    with pytest.raises(DataError, match="label 2 is -1"):
        label_skew(np.array([0, 1, -1, 1]), Skew(1, 1.0, min_samples=1))


@pytest.mark.parametrize("concentration", [1e-300, 0.001, 1e308])
def test_one_client_gets_everything_at_any_concentration(concentration) -> None:
    for seed in range(20):
        skew = Skew(1, concentration, seed=seed)
        assert np.bincount(quantity_skew(50, skew)).tolist() == [50]
        assert np.bincount(label_skew(np.arange(50) % 3, skew)).tolist() == [50]


def test_a_class_that_nobody_has_does_no_harm() -> None:
    owners = label_skew(np.repeat([0, 3], 50), Skew(2, 0.5))
    assert np.bincount(owners).sum() == 100
