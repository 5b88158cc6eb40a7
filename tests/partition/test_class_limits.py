import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import DataError
from fedbb.partition.class_limits import deal_shards, limit_classes

SEEDS = st.integers(0, 2**32 - 1)


def held_classes(labels, owners):
    """Return the classes of each client, as a set."""
    return [set(labels[owners == client].tolist()) for client in range(owners.max() + 1)]


def niid_bench(labels, clients, limit, seed):
    """The split "#C=k" of NIID-Bench as its code describes it: the owners, or None if it fails."""
    draw, classes = random.Random(seed), int(labels.max()) + 1
    contain = []
    for client in range(clients):
        others = [label for label in range(classes) if label != client % classes]
        contain.append({client % classes, *draw.sample(others, limit - 1)})
    owners = np.full(len(labels), -1)
    for label in range(classes):
        holders = [client for client in range(clients) if label in contain[client]]
        if not holders:
            return None
        places = np.random.RandomState(seed).permutation(np.flatnonzero(labels == label))
        for client, part in zip(holders, np.array_split(places, len(holders)), strict=True):
            owners[part] = client
    return owners


def check_laws(labels, owners, clients, limit):
    """What NIID-Bench's split and this one have in common."""
    held = held_classes(labels, owners)
    assert len(held) == clients
    assert all(len(own) == limit for own in held)
    for label in np.unique(labels):
        sizes = np.bincount(owners[labels == label], minlength=clients)
        assert np.ptp(sizes[sizes > 0]) <= 1


@given(classes=st.integers(1, 12), clients=st.integers(1, 25), limit=st.integers(1, 12), seed=SEEDS)
def test_every_client_has_its_number_of_classes_and_every_class_is_held(
    classes, clients, limit, seed
) -> None:
    labels = np.random.default_rng(seed).permutation(np.arange(classes * 30) % classes)
    if limit > classes or clients * limit < classes:
        with pytest.raises(DataError, match=r"allowed are 1 to|cannot hold all"):
            limit_classes(labels, clients, limit, seed)
        return
    owners = limit_classes(labels, clients, limit, seed)
    check_laws(labels, owners, clients, limit)
    held = held_classes(labels, owners)
    assert set().union(*held) == set(range(classes))
    holders = [sum(label in own for own in held) for label in range(classes)]
    assert max(holders) - min(holders) <= 1
    assert np.array_equal(owners, limit_classes(labels, clients, limit, seed))


def test_the_laws_are_those_of_niid_bench() -> None:
    labels = np.arange(1000) % 10
    theirs = niid_bench(labels, 10, 2, seed=0)
    check_laws(labels, theirs, 10, 2)
    check_laws(labels, limit_classes(labels, 10, 2, seed=0), 10, 2)
    assert niid_bench(labels, 5, 2, seed=0) is None  # a class that nobody holds
    check_laws(labels, limit_classes(labels, 5, 2, seed=0), 5, 2)


def test_classes_that_do_not_occur_need_no_holder() -> None:
    labels = np.repeat([0, 7, 9], 10)
    assert held_classes(labels, limit_classes(labels, 3, 1, seed=0)) != [{0}, {1}, {2}]
    assert set().union(*held_classes(labels, limit_classes(labels, 3, 1, seed=0))) == {0, 7, 9}


def test_a_class_with_fewer_samples_than_holders_is_refused() -> None:
    labels = np.array([0] * 20 + [1] * 2)
    with pytest.raises(DataError, match="class 1 has 2 samples for the 3 clients"):
        limit_classes(labels, 3, 2, seed=0)


@pytest.mark.parametrize("divide", [limit_classes, deal_shards])
def test_the_seed_decides(divide) -> None:
    labels = np.arange(200) % 10
    first, again, other = (divide(labels, 10, 2, seed).tolist() for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize("divide", [limit_classes, deal_shards])
@pytest.mark.parametrize(("clients", "number"), [(0, 2), (5, 0), (-1, -1)])
def test_no_clients_and_nothing_for_them_are_refused(divide, clients, number) -> None:
    with pytest.raises(DataError, match=r"at least|allowed are 1 to"):
        divide(np.arange(50) % 5, clients, number, 0)


@given(
    samples=st.integers(1, 300), clients=st.integers(1, 20), number=st.integers(1, 5), seed=SEEDS
)
def test_every_client_gets_equal_shards_of_the_sorted_data(samples, clients, number, seed) -> None:
    labels = np.random.default_rng(seed).integers(0, 4, samples)
    if clients * number > samples:
        with pytest.raises(DataError, match=f"there are {samples} samples"):
            deal_shards(labels, clients, number, seed)
        return
    owners = deal_shards(labels, clients, number, seed)
    sizes = np.bincount(owners, minlength=clients)
    assert len(sizes) == clients
    assert np.ptp(sizes) <= number
    runs = np.flatnonzero(np.diff(owners[np.argsort(labels, kind="stable")])).size + 1
    assert runs <= clients * number


def test_mcmahans_split_gives_a_client_two_digits() -> None:
    labels = np.repeat(np.arange(10), 600)  # 200 shards of 30, none across two digits
    owners = deal_shards(labels, 100, 2, seed=0)
    assert set(np.bincount(owners)) == {60}
    assert {len(own) for own in held_classes(labels, owners)} <= {1, 2}
