import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedbb.data.dataset import Examples
from fedbb.errors import DataError
from fedbb.partition.multilabel import deciding_classes
from fedbb.partition.registry import Rule, divide
from fedbb.records import Task

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
    decided = deciding_classes(labels, seed)
    for row, chosen in zip(labels, decided, strict=True):
        assert row[chosen] == 1 if chosen < len(row) else not (row == 1).any()
    assert np.array_equal(decided, deciding_classes(labels, seed))


def test_each_positive_class_decides_as_often_as_the_others() -> None:
    decided = deciding_classes(np.tile(np.array([1, 0, 1, 1], np.float32), (30_000, 1)), seed=0)
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
    marks = Examples(plain.images, (numbers[:, None] == np.arange(4)).astype(np.float32))
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
