import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.analysis.label_statistics import from_array, number_rows
from fedbb.errors import DataError


@given(st.integers(1, 90), st.integers(1, 30), st.randoms(use_true_random=False))
def test_rows_are_numbered_alike_exactly_where_they_are_equal(columns, rows, random):
    kinds = [[random.choice([-1, 0, 1]) for _ in range(columns)] for _ in range(4)]
    marks = np.array([random.choice(kinds) for _ in range(rows)], dtype=np.int8)
    numbers, first = number_rows(marks)
    assert len(first) == len({tuple(row) for row in marks.tolist()})
    assert np.array_equal(marks[first][numbers], marks)


def test_labels_come_back_as_they_were():
    marks = np.array([[1, 0, np.nan], [0, 0, 1], [1, 0, np.nan]], dtype=np.float32)
    assert np.array_equal(from_array(marks).as_array(), marks, equal_nan=True)
    assert from_array([2, 0, 2]).as_array().tolist() == [2, 0, 2]


def test_minus_one_is_unknown_and_names_are_sorted():
    assert np.isnan(from_array([[-1, 1]]).as_array()[0, 0])
    assert from_array(["b", "a", "b"]).pattern.tolist() == [1, 0, 1]
    assert from_array(["b", "a"], classes=["b", "a"]).pattern.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        ([], {}, "shape"),
        ([[[1]]], {}, "shape"),
        ([0.5], {}, "label 0 is 0.5"),
        ([0, -3], {}, "label 1 is -3"),
        ([0, np.nan], {}, "label 1 is nan"),
        ([0, 7], {"classes": ["a", "b"]}, "label 1 is 7"),
        ([0, 10**9], {}, "label 1 is 1000000000; .* name all classes"),
        (["a", "c"], {"classes": ["a", "b"]}, "'c'"),
        ([[0, 2]], {}, "label 0, class 1 is 2"),
        ([["a"]], {}, "numbers 0 and 1"),
        ([[0, 1]], {"classes": ["a"]}, "1 classes"),
        ([0, 1], {"task": "multilabel"}, "multiclass"),
        ([object()], {}, "numbers or text"),
    ],
)
def test_labels_that_cannot_be_are_refused_with_their_place(labels, options, words):
    with pytest.raises(DataError, match=words):
        from_array(labels, **options)
