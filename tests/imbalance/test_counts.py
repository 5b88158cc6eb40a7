"""Counting labels of both tasks, unknown ones among them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbb._util.files import finite_or_none
from fedbb.imbalance import count_groups, count_labels, sum_by_group, to_array
from fedbb.records import Task
from helpers.columns import NA, Column

quick = settings(deadline=None, max_examples=25)
NAN = float("nan")


@quick
@given(st.lists(st.integers(0, 4), max_size=30))
def test_multiclass_counts_are_those_of_a_loop(labels):
    counts = count_labels(np.array(labels, dtype=np.int64), Task.MULTICLASS, 5)
    assert counts.positive.tolist() == [labels.count(number) for number in range(5)]
    assert counts.negative.tolist() == [len(labels) - labels.count(number) for number in range(5)]
    assert counts.samples == len(labels)


@quick
@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 20), st.integers(1, 5)),
        elements=st.sampled_from([0.0, 1.0, NAN]),
    )
)
def test_multilabel_counts_are_those_of_a_loop_and_unknown_ones_count_nowhere(labels):
    counts = count_labels(labels, Task.MULTILABEL, labels.shape[1])
    for number, column in enumerate(labels.T.tolist()):
        assert counts.positive[number] == sum(value == 1 for value in column)
        assert counts.negative[number] == sum(value == 0 for value in column)
    assert counts.samples == len(labels)


def test_a_task_may_be_given_by_its_name_and_labels_as_booleans():
    counts = count_labels([[True, False], [True, True]], "multilabel", 2)
    assert counts.positive.tolist() == [2, 1]
    assert counts.negative.tolist() == [0, 1]


def test_counts_are_float64():
    counts = count_labels([0, 1], "multiclass", 2)
    assert counts.positive.dtype == counts.negative.dtype == np.float64


def test_more_classes_than_memory_could_count_are_refused():
    with pytest.raises(ValueError, match="1000000000000 classes are more than the 100000 allowed"):
        count_labels([0, 1], "multiclass", 10**12)


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], [0.5, 1.0], [0.0, NAN], [0.0, float("inf")]])
def test_multiclass_labels_outside_the_classes_are_refused(labels):
    with pytest.raises(ValueError, match="multi-class labels must be whole numbers from 0 to 2"):
        count_labels(labels, "multiclass", 3)


@pytest.mark.parametrize("labels", [[[0, 2]], [[0.5, 1]], [[-1, 0]], [[float("inf"), 0]]])
def test_multilabel_entries_other_than_zero_one_and_unknown_are_refused(labels):
    with pytest.raises(ValueError, match="multi-label labels must be 0, 1 or NaN"):
        count_labels(labels, "multilabel", 2)


@pytest.mark.parametrize(
    ("labels", "task"),
    [([[0, 1]], "multiclass"), ([0, 1], "multilabel"), ([[0, 1]], "multilabel"), (1, "multiclass")],
)
def test_labels_of_the_wrong_shape_are_refused(labels, task):
    with pytest.raises(ValueError, match="labels must have shape"):
        count_labels(labels, task, 3)


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="'regression' is not a valid Task"):
        count_labels([0, 1], "regression", 2)


@quick
@given(st.data(), st.sampled_from(Task))
def test_counts_of_many_groups_are_those_of_each(data, task):
    whole = st.integers(0, 2) if task is Task.MULTICLASS else st.sampled_from([0.0, 1.0, NAN])
    shape = 20 if task is Task.MULTICLASS else (20, 3)
    kind = np.int64 if task is Task.MULTICLASS else np.float32
    labels = data.draw(hnp.arrays(kind, shape, elements=whole))
    cuts = sorted(data.draw(st.lists(st.integers(0, 20), max_size=4)))
    groups = np.split(np.random.default_rng(0).permutation(20), cuts)
    for rows, found in zip(groups, count_groups(labels, groups, task, 3), strict=True):
        expected = count_labels(labels[rows], task, 3)
        assert found.samples == expected.samples
        assert found.positive.tolist() == expected.positive.tolist()
        assert found.negative.tolist() == expected.negative.tolist()


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2], "i", [1, 2]),
        (torch.tensor([1, 2]), "i", [1, 2]),
        (["b", "a"], "U", ["b", "a"]),
        ([b"b", b"a"], "U", ["b", "a"]),
        (Column(["b", "a"]), "U", ["b", "a"]),
        (Column([2, 1]), "i", [2, 1]),
        (Column([True, False]), "b", [True, False]),
        (Column([2, NA]), "f", [2.0, None]),
        (Column([2, None]), "f", [2.0, None]),
    ],
)
def test_columns_of_any_kind_become_numbers_or_text(values, kind, expected):
    found = to_array(values)
    assert found.dtype.kind == kind
    assert finite_or_none(found) == expected


@pytest.mark.parametrize("values", [["a", 1], ["a", None], [NA, "a"], [object()], [1, {}]])
def test_a_column_of_mixed_kinds_is_refused(values):
    with pytest.raises(ValueError, match="label"):
        to_array(Column(values))


def test_sums_by_group_may_refer_to_rows_and_repeat_them():
    values = np.array([[1.0, 0.0], [0.0, 2.0]])
    groups = np.array([0, 2, 2])
    found = sum_by_group(values, groups, 3, rows=np.array([0, 1, 0]), times=np.array([1, 2, 3]))
    assert found.tolist() == [[1, 0], [0, 0], [3, 4]]
    assert sum_by_group(values, np.array([1, 1]), 2).tolist() == [[0, 0], [1, 2]]
    assert sum_by_group(np.zeros((2, 0)), np.array([0, 1]), 2).shape == (2, 0)
