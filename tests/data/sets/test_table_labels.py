from pathlib import Path

import numpy as np
import pytest

from fedbb.data.csv_table import Sheet
from fedbb.data.sets.table_labels import read_class_column, read_label_columns
from fedbb.errors import DataError


def sheet(**columns: list[str]) -> Sheet:
    rows = tuple(zip(*columns.values(), strict=True))
    return Sheet(Path("labels.csv"), tuple(columns), rows, tuple(range(2, 2 + len(rows))))


def test_classes_are_numbered_in_alphabetical_order_unless_given() -> None:
    animals = sheet(animal=["dog", " cat", "dog"])
    classes, labels = read_class_column(animals, "animal", ())
    assert classes == ("cat", "dog")
    assert labels.tolist() == [1, 0, 1]
    classes, labels = read_class_column(animals, "animal", ("dog", "horse", "cat"))
    assert classes == ("dog", "horse", "cat")
    assert labels.tolist() == [0, 2, 0]


def test_a_class_that_is_blank_or_unknown_is_named_with_its_line() -> None:
    with pytest.raises(DataError, match=r"labels\.csv: line 3, column animal: .* no class name"):
        read_class_column(sheet(animal=["dog", " "]), "animal", ())
    with pytest.raises(DataError, match=r"line 3, column animal: 'hors' is no class; did you"):
        read_class_column(sheet(animal=["dog", "hors"]), "animal", ("dog", "horse"))


def test_marks_are_read_column_by_column() -> None:
    marks = sheet(edema=["0", "1.0", " 1"], mass=["0.0", "0", "1"])
    labels = read_label_columns(marks, ("mass", "edema"), "refuse", "refuse")
    assert labels.dtype == np.float32
    assert labels.tolist() == [[0, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize("uncertain", [("zeros", 0.0), ("ones", 1.0), ("ignore", np.nan)])
@pytest.mark.parametrize("blank", [("zeros", 0.0), ("ones", 1.0), ("ignore", np.nan)])
def test_uncertain_and_blank_follow_each_its_policy(uncertain, blank) -> None:
    marks = sheet(edema=["-1", "", "-1.0", "1"])
    labels = read_label_columns(marks, ("edema",), uncertain[0], blank[0])
    expected = [[uncertain[1]], [blank[1]], [uncertain[1]], [1]]
    assert np.array_equal(labels, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("-1", "the label is -1; set the option uncertain"),
        ("", "the label is blank; set the option blank"),
        ("2", "the label is '2'; allowed are 0 and 1"),
        ("yes", "the label is 'yes'"),
        ("nan", "the label is 'nan'"),
    ],
)
def test_a_mark_that_nothing_allows_is_named_with_line_and_column(value, message) -> None:
    marks = sheet(edema=["0", "1"], mass=["0", value])
    with pytest.raises(DataError, match=rf"labels\.csv: line 3, column mass: {message}"):
        read_label_columns(marks, ("edema", "mass"), "refuse", "refuse")


def test_a_missing_label_column_is_named() -> None:
    with pytest.raises(DataError, match=r"no column 'masss'; did you mean mass\?"):
        read_label_columns(sheet(mass=["0"]), ("masss",), "refuse", "refuse")
