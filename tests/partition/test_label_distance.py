import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import jensenshannon

from fedbb.data.registry import load_dataset
from fedbb.errors import DataError
from fedbb.partition.algorithms import iid_parts
from fedbb.partition.functions import dirichlet
from fedbb.partition.label_distance import measure_skew, skew


def clients_of(owners: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(owners == client) for client in np.unique(owners)]


def test_the_skew_of_three_clients_worked_by_hand() -> None:
    # The whole has shares (1/2, 1/2). Client 0 holds 0 0 0: ½ (½ + ½) = ½. Client 1 holds 0 1: 0.
    # Client 2 holds 1 1 1: ½. By size: (3 · ½ + 2 · 0 + 3 · ½) / 8 = 3/8.
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    assert measure_skew(labels, [np.arange(3), np.array([3, 4]), np.arange(5, 8)]) == 3 / 8


def test_the_skew_of_several_labels_worked_by_hand() -> None:
    # Row 0 counts half for each of its two classes, row 1 for none, which is the last place: the
    # whole is (⅛, ⅜, ¼, ¼). Rows 0 and 1 are (¼, ¼, 0, ½), ⅜ away; the others as far beyond.
    labels = np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1], [0, 1, 0]])
    assert measure_skew(labels, [np.array([0, 1]), np.array([2, 3])]) == 3 / 8


def test_an_unknown_label_counts_as_none() -> None:
    labels = np.array([[1, np.nan], [1, 0]], dtype=np.float32)
    assert measure_skew(labels, [np.array([0]), np.array([1])]) == 0


@given(
    arrays(np.float32, (40, 3), elements=st.sampled_from([0.0, 1.0])),
    arrays(np.int64, 40, elements=st.integers(0, 3)),
)
def test_the_skew_is_within_bounds_and_blind_to_the_order_of_samples(labels, owners) -> None:
    skew = measure_skew(labels, clients_of(owners))
    order = np.random.default_rng(0).permutation(40)
    assert 0 <= skew < 1
    assert measure_skew(labels[order], clients_of(owners[order])) == pytest.approx(skew, abs=1e-12)
    assert measure_skew(labels, [np.arange(40)]) == 0


def test_clients_of_one_class_each_are_as_far_apart_as_can_be() -> None:
    labels = np.repeat(np.arange(10), 7)
    assert measure_skew(labels, clients_of(labels)) == pytest.approx(0.9)


def test_large_clients_drawn_at_random_are_nearly_alike() -> None:
    labels = np.arange(20_000) % 10
    assert measure_skew(labels, clients_of(iid_parts(20_000, 4, seed=0))) < 0.02


@given(st.integers(0, 2**32 - 1))
def test_the_measures_are_those_of_scipy(seed) -> None:
    rng = np.random.default_rng(seed)
    labels, owners = rng.integers(0, 4, 60), rng.permutation(np.arange(60) % 5)
    found = skew(labels, owners)
    whole = np.bincount(labels, minlength=4) / 60
    for client in range(5):
        shares = np.bincount(labels[owners == client], minlength=4) / 12
        assert found.jensen_shannon[client] == pytest.approx(jensenshannon(shares, whole, 2))
        overlap = np.sqrt(shares * whole).sum()
        assert found.hellinger[client] == pytest.approx(np.sqrt(max(1 - overlap, 0)), abs=1e-7)
        assert found.total_variation[client] == pytest.approx(np.abs(shares - whole).sum() / 2)
    assert (found.hellinger**2 <= found.total_variation + 1e-12).all()
    mean = found.mean["total_variation"]
    assert mean == pytest.approx(
        measure_skew(labels, [np.flatnonzero(owners == c) for c in range(5)])
    )


def test_names_and_partitions_are_owners_too() -> None:
    data = load_dataset("digits")
    made = dirichlet(data, clients=4, concentration=0.5)
    found = skew(data.train.labels, made)
    assert found.mean["total_variation"] == pytest.approx(made.rule["measured_skew"], abs=1e-6)
    named = skew(["a", "b", "a"], ["x", "y", "x"])
    assert named.clients == ("x", "y")
    assert named.samples.tolist() == [2, 1]
    several = skew([[1, 1, 0], [0, 0, np.nan]], ["x", "y"])
    assert several.total_variation == pytest.approx([0.5, 0.5])
    with pytest.raises(DataError, match="3 labels need as many"):
        skew([0, 1, 2], [0, 1])
