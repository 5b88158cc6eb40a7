import random
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedbb.data.dataset import Examples
from fedbb.errors import DataError
from fedbb.partition.algorithms import (
    assign_shards,
    dominant_label,
    label_skew,
    limit_classes,
    quantity_skew,
)
from fedbb.partition.registry import Rule, divide
from fedbb.records import Task

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
    owners = label_skew(CIFAR10_LABELS, 10, 0.1, seed=0)
    sizes = [7615, 5142, 7498, 865, 2731, 6130, 6415, 3034, 6091, 4479]
    assert np.bincount(owners).tolist() == sizes
    first = np.bincount(CIFAR10_LABELS[owners == 0], minlength=10)
    assert first.tolist() == [976, 1632, 18, 1120, 0, 132, 0, 636, 3101, 0]


@pytest.mark.parametrize(
    ("seed", "sizes"), [(0, [209, 535, 16, 21, 85555]), (1996, [78406, 626, 56, 7223, 25])]
)
def test_quantity_skew_reproduces_the_split_of_the_public_code(seed, sizes) -> None:
    assert np.bincount(quantity_skew(86336, 5, 0.1, seed=seed)).tolist() == sizes


@given(
    labels=st.lists(st.integers(0, 4), min_size=80, max_size=160),
    clients=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_label_skew_equals_a_slow_reference(labels, clients, seed) -> None:
    array = np.array(labels)
    owners = label_skew(array, clients, 1.0, seed=seed)
    held = [np.flatnonzero(owners == client).tolist() for client in range(clients)]
    assert held == slow_label_skew(array, clients, 1.0, seed)


@given(
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=120),
    clients=st.integers(1, 12),
    concentration=CONCENTRATIONS,
    minimum=st.integers(1, 10),
)
def test_label_skew_keeps_its_minimum_or_refuses(labels, clients, concentration, minimum) -> None:
    skew = (clients, concentration, minimum)
    try:
        owners = label_skew(np.array(labels), *skew)
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
    skew = (clients, concentration, 3, seed)
    try:
        owners = quantity_skew(samples, *skew)
    except DataError:
        return
    sizes = np.bincount(owners, minlength=clients)
    assert len(owners) == samples
    assert len(sizes) == clients
    assert sizes.min() >= 3
    assert np.array_equal(owners, quantity_skew(samples, *skew))


def test_a_seed_decides_the_split_and_another_seed_gives_another() -> None:
    first = label_skew(CIFAR10_LABELS, 10, 0.5, seed=3)
    assert np.array_equal(first, label_skew(CIFAR10_LABELS, 10, 0.5, seed=3))
    assert not np.array_equal(first, label_skew(CIFAR10_LABELS, 10, 0.5, seed=4))


def test_the_smaller_the_concentration_the_fewer_classes_a_client_has() -> None:
    def classes_per_client(concentration):
        owners = label_skew(CIFAR10_LABELS, 10, concentration)
        return np.mean([len(np.unique(CIFAR10_LABELS[owners == client])) for client in range(10)])

    few, more, all_of_them = (classes_per_client(value) for value in (0.01, 0.3, 1e6))
    assert few < more < all_of_them == 10


@pytest.mark.parametrize("concentration", [0.001, 1e-300])
def test_a_vanishing_concentration_gives_each_class_to_one_client(concentration) -> None:
    owners = label_skew(CIFAR10_LABELS, 10, concentration)
    per_class = owners.reshape(10, 5000)
    assert (np.ptp(per_class, axis=1) == 0).all()
    # A client with one whole class holds its average and is closed, so no client gets two.
    assert sorted(per_class[:, 0].tolist()) == list(range(10))


@pytest.mark.parametrize("concentration", [1e6, 1e300, 1.7e308])
def test_a_vast_concentration_gives_clients_alike(concentration) -> None:
    skew = (10, concentration)
    assert np.ptp(np.bincount(label_skew(CIFAR10_LABELS, *skew))) <= 40
    assert np.ptp(np.bincount(quantity_skew(50000, *skew))) <= 40


@pytest.mark.parametrize(
    "deal",
    [lambda skew: label_skew(CIFAR10_LABELS, *skew), lambda skew: quantity_skew(50000, *skew)],
)
@pytest.mark.parametrize("concentration", [1e-300, 0.001])
def test_a_split_that_cannot_be_had_ends_soon_and_says_what_to_change(deal, concentration) -> None:
    start = time.monotonic()
    with pytest.raises(DataError, match=r"raise concentration, lower min_samples, take fewer"):
        deal((30, concentration))
    assert time.monotonic() - start < 20


def test_a_thousand_clients_of_a_hundred_thousand_samples_take_little_time() -> None:
    labels = np.arange(100_000) % 100
    start = time.monotonic()
    owners = label_skew(labels, 1000, 0.5)
    assert time.monotonic() - start < 5
    assert np.bincount(owners).min() >= 10


def test_a_client_that_rounding_leaves_short_is_not_let_pass() -> None:
    # Ten equal shares of 100 are ten each, yet the rounded sums 0.1 + 0.1 + … cut off one of them.
    with pytest.raises(DataError, match="fewer than 10 of 100 samples"):
        quantity_skew(100, 10, 1e100)


@pytest.mark.parametrize(
    ("skew", "message"),
    [
        ({"clients": 0, "concentration": 0.5}, "clients is 0"),
        ({"clients": 5, "concentration": 0.0}, "concentration is 0"),
        ({"clients": 5, "concentration": -1.0}, "concentration is -1"),
        ({"clients": 5, "concentration": float("nan")}, "concentration is nan"),
        ({"clients": 5, "concentration": float("inf")}, "concentration is inf"),
        ({"clients": 5, "concentration": 0.5, "min_samples": 0}, "min_samples is 0"),
        ({"clients": 5, "concentration": 0.5, "seed": -1}, "seed is -1"),
        (
            {"clients": 11, "concentration": 0.5},
            "11 clients of at least 10 samples need 110; there are 100",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(skew, message) -> None:
    with pytest.raises(DataError, match=message):
        label_skew(np.arange(100) % 4, **skew)
    with pytest.raises(DataError, match=message):
        quantity_skew(100, **skew)


def test_a_negative_label_is_refused() -> None:
    with pytest.raises(DataError, match="label 2 is -1"):
        label_skew(np.array([0, 1, -1, 1]), 1, 1.0, min_samples=1)


@pytest.mark.parametrize("concentration", [1e-300, 0.001, 1e308])
def test_one_client_gets_everything_at_any_concentration(concentration) -> None:
    for seed in range(20):
        skew = (1, concentration, 10, seed)
        assert np.bincount(quantity_skew(50, *skew)).tolist() == [50]
        assert np.bincount(label_skew(np.arange(50) % 3, *skew)).tolist() == [50]


def test_a_class_that_nobody_has_does_no_harm() -> None:
    owners = label_skew(np.repeat([0, 3], 50), 2, 0.5)
    assert np.bincount(owners).sum() == 100


MARKS = arrays(
    np.float32,
    st.tuples(st.integers(60, 90), st.integers(1, 4)),
    elements=st.sampled_from([0.0, 1.0, np.nan]),
)


def chest_films(samples: int = 3000) -> Examples:
    """Half without any label, the others with one to four of five, some common and some rare."""
    rng = np.random.default_rng(5)
    labels = (rng.random((samples, 5)) < [0.2, 0.15, 0.1, 0.05, 0.02]).astype(np.float32)
    return Examples(np.zeros((samples, 1, 1, 1), np.uint8), labels)


def skew_of(concentration: float, seed: int, kind: str = "label-skew") -> float:
    rule = Rule(kind, clients=5, concentration=concentration, seed=seed)
    return divide(rule, chest_films(), Task.MULTILABEL).rule["measured_skew"]


@given(labels=MARKS, seed=st.integers(0, 99))
def test_a_positive_class_decides_or_none_where_there_is_none(labels, seed) -> None:
    decided = dominant_label(labels, seed)
    for row, chosen in zip(labels, decided, strict=True):
        assert row[chosen] == 1 if chosen < len(row) else not (row == 1).any()
    assert np.array_equal(decided, dominant_label(labels, seed))


def test_each_positive_class_decides_as_often_as_the_others() -> None:
    decided = dominant_label(np.tile(np.array([1, 0, 1, 1], np.float32), (30_000, 1)), seed=0)
    assert np.bincount(decided, minlength=5)[[1, 4]].tolist() == [0, 0]
    assert np.bincount(decided)[[0, 2, 3]] == pytest.approx([10_000] * 3, rel=0.03)


@given(
    labels=MARKS,
    clients=st.integers(1, 4),
    concentration=st.sampled_from([0.5, 1.0, 100.0]),
    seed=st.integers(0, 99),
)
def test_every_sample_is_in_exactly_one_client(labels, clients, concentration, seed) -> None:
    rule = Rule("label-skew", clients, concentration, min_samples=1, seed=seed)
    data = Examples(np.zeros((len(labels), 1, 1, 1), np.uint8), labels)
    made = divide(rule, data, Task.MULTILABEL)
    assert np.array_equal(np.sort(np.concatenate(made.clients)), np.arange(len(labels)))
    assert made == divide(rule, data, Task.MULTILABEL)


@given(
    classes=st.lists(st.integers(0, 3), min_size=60, max_size=90), seed=st.integers(0, 2**32 - 1)
)
def test_images_of_one_label_each_are_divided_as_multi_class_ones(classes, seed) -> None:
    numbers = np.array(classes)
    plain = Examples(np.zeros((len(numbers), 1, 1, 1), np.uint8), numbers)
    marks = Examples(plain.inputs, (numbers[:, None] == np.arange(4)).astype(np.float32))
    rule = Rule("label-skew", clients=3, concentration=1.0, min_samples=5, seed=seed)
    first = divide(rule, plain, Task.MULTICLASS)
    second = divide(rule, marks, Task.MULTILABEL)
    assert [own.tolist() for own in first.clients] == [own.tolist() for own in second.clients]
    assert first.rule == second.rule


def test_the_smaller_the_concentration_the_more_the_labels_are_skewed() -> None:
    means = [np.mean([skew_of(delta, seed) for seed in range(8)]) for delta in (0.1, 0.5, 5, 1e3)]
    assert means == sorted(means, reverse=True)
    assert means[0] > 0.3
    assert means[-1] < 0.03


def test_quantity_skew_leaves_the_labels_nearly_alike_where_label_skew_does_not() -> None:
    for seed in range(4):
        assert skew_of(0.5, seed, "quantity-skew") < 0.1 < skew_of(0.5, seed)


def test_the_split_ends_at_every_concentration() -> None:
    assert skew_of(1e-300, 0) > 0.4
    assert skew_of(1e-3, 0) > 0.4
    assert skew_of(1e308, 0) < 0.03


def test_more_clients_than_the_labels_can_fill_are_refused() -> None:
    one = Examples(np.zeros((60, 1, 1, 1), np.uint8), np.ones((60, 1), np.float32))
    rule = Rule("label-skew", clients=5, concentration=1e-300)
    with pytest.raises(DataError, match="raise concentration"):
        divide(rule, one, Task.MULTILABEL)


SEEDS = st.integers(0, 2**32 - 1)


def held_classes(labels, owners):
    """Return the classes of each client, as a set."""
    return [set(labels[owners == client].tolist()) for client in range(owners.max() + 1)]


def niid_bench(labels, clients, limit, seed):
    """The split "#C=k" of NIID-Bench as its code describes it: the owners, or None if it fails."""
    draw, order = random.Random(seed), np.random.RandomState(seed)
    classes = int(labels.max()) + 1
    contain = []
    for client in range(clients):
        own = [client % classes]
        while len(own) < limit:
            own = list(dict.fromkeys([*own, draw.randint(0, classes - 1)]))
        contain.append(own)
    owners = np.full(len(labels), -1)
    for label in range(classes):
        holders = [client for client in range(clients) if label in contain[client]]
        if not holders:
            return None
        places = np.flatnonzero(labels == label)
        order.shuffle(places)
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
        with pytest.raises(DataError, match=r"allowed: 1 to|cannot hold all"):
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


@given(clients=st.integers(10, 30), limit=st.integers(1, 9), seed=SEEDS)
def test_random_holders_are_those_of_niid_bench(clients, limit, seed) -> None:
    labels = np.arange(1000) % 10
    owners = limit_classes(labels, clients, limit, seed, "random")
    assert np.array_equal(owners, niid_bench(labels, clients, limit, seed))
    check_laws(labels, owners, clients, limit)


def test_random_holders_give_the_clients_that_niid_benchs_own_code_gives() -> None:
    """The numbers are of its partition_data at 61b901a with seed 0, for labels 0 to 9 in turn."""
    owners = limit_classes(np.arange(100) % 10, 10, 2, 0, "random")
    assert np.flatnonzero(owners == 0).tolist() == [10, 16, 20, 26, 36, 40, 76, 80, 90]
    assert np.flatnonzero(owners == 6).tolist() == [6, 34, 46, 84, 94, 96]
    assert np.bincount(owners).tolist() == [9, 13, 15, 9, 8, 10, 6, 10, 10, 10]


def test_random_holders_need_a_client_for_each_class() -> None:
    with pytest.raises(DataError, match="a client for each of the 10 classes; there are 9"):
        limit_classes(np.arange(100) % 10, 9, 2, 0, "random")
    with pytest.raises(DataError, match="holders is 'odd'; allowed: even, random"):
        limit_classes(np.arange(100) % 10, 10, 2, 0, "odd")


def test_classes_that_do_not_occur_need_no_holder() -> None:
    labels = np.repeat([0, 7, 9], 10)
    assert held_classes(labels, limit_classes(labels, 3, 1, seed=0)) != [{0}, {1}, {2}]
    assert set().union(*held_classes(labels, limit_classes(labels, 3, 1, seed=0))) == {0, 7, 9}


def test_a_class_with_fewer_samples_than_holders_is_refused() -> None:
    labels = np.array([0] * 20 + [1] * 2)
    with pytest.raises(DataError, match="class 1 has 2 samples for the 3 clients"):
        limit_classes(labels, 3, 2, seed=0)


@pytest.mark.parametrize("divide", [limit_classes, assign_shards])
def test_the_seed_decides(divide) -> None:
    labels = np.arange(200) % 10
    first, again, other = (divide(labels, 10, 2, seed).tolist() for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize("divide", [limit_classes, assign_shards])
@pytest.mark.parametrize(("clients", "number"), [(0, 2), (5, 0), (-1, -1)])
def test_no_clients_and_nothing_for_them_are_refused(divide, clients, number) -> None:
    with pytest.raises(DataError, match=r"at least|allowed: 1 to"):
        divide(np.arange(50) % 5, clients, number, 0)


@given(
    samples=st.integers(1, 300), clients=st.integers(1, 20), number=st.integers(1, 5), seed=SEEDS
)
def test_every_client_gets_equal_shards_of_the_sorted_data(samples, clients, number, seed) -> None:
    labels = np.random.default_rng(seed).integers(0, 4, samples)
    if clients * number > samples:
        with pytest.raises(DataError, match=f"there are {samples} samples"):
            assign_shards(labels, clients, number, seed)
        return
    owners = assign_shards(labels, clients, number, seed)
    sizes = np.bincount(owners, minlength=clients)
    assert len(sizes) == clients
    assert np.ptp(sizes) <= number
    runs = np.flatnonzero(np.diff(owners[np.argsort(labels, kind="stable")])).size + 1
    assert runs <= clients * number


def test_mcmahans_split_gives_a_client_two_digits() -> None:
    labels = np.repeat(np.arange(10), 600)  # 200 shards of 30, none across two digits
    owners = assign_shards(labels, 100, 2, seed=0)
    assert set(np.bincount(owners)) == {60}
    assert {len(own) for own in held_classes(labels, owners)} <= {1, 2}
