"""Teacher files: what is written is read back, follows its examples, and must fit the data."""

from dataclasses import replace

import numpy as np
import pytest

from fedbb.data import save_teacher
from fedbb.data.teacher_file import read_prototypes, with_teacher
from fedbb.errors import DataError
from fedbb.records import Task
from helpers.toy import toy_dataset

DATA = toy_dataset()
LOGITS = np.arange(len(DATA.train) * 3, dtype=np.float64).reshape(-1, 3) / 7
TEXT = np.eye(3, 5)


def written(tmp_path, **changes):
    """Return a file whose arrays differ from a correct one; None leaves an array out."""
    arrays = {"logits": LOGITS, "labels": DATA.train.labels, "classes": ["a", "b", "c"]}
    arrays = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    np.savez(tmp_path / "made.npz", **arrays)
    return str(tmp_path / "made.npz")


@pytest.mark.parametrize("task", Task)
def test_what_is_written_is_read_back(tmp_path, task):
    data = toy_dataset(task)
    if task is Task.MULTILABEL:
        data.train.labels[0, 0] = np.nan  # an unknown label equals itself here
    save_teacher(tmp_path / "teacher.npz", data, LOGITS, TEXT)
    found = with_teacher(data, str(tmp_path / "teacher.npz")).train.teacher
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, LOGITS.astype(np.float32))
    np.testing.assert_array_equal(read_prototypes(str(tmp_path / "teacher.npz"), 3), TEXT)


def test_logits_stay_with_their_examples(tmp_path):
    data = with_teacher(DATA, written(tmp_path))
    rows = {row.tobytes(): place for place, row in enumerate(DATA.train.inputs)}
    for part in (data.subset(20, seed=3), data.long_tail(0.2, seed=3)):
        assert len(part.train) < len(DATA.train)
        places = [rows[row.tobytes()] for row in part.train.inputs]
        np.testing.assert_array_equal(part.train.teacher, LOGITS[places].astype(np.float32))


def test_labels_and_classes_may_be_missing(tmp_path):
    assert (
        with_teacher(DATA, written(tmp_path, labels=None, classes=None)).train.teacher is not None
    )


OTHER = DATA.train.labels.copy()
OTHER[7] = (OTHER[7] + 1) % 3
BROKEN = LOGITS.copy()
BROKEN[4, 1] = np.nan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": None}, "no array 'logits'"),
        (
            {"logits": LOGITS[1:]},
            r"float64 of shape \(59, 3\); toy needs floats of shape \(60, 3\)",
        ),
        ({"logits": LOGITS[:, :2]}, r"of shape \(60, 2\); toy needs"),
        ({"logits": LOGITS.astype(int)}, "logits are int64"),
        ({"logits": BROKEN}, r"row 4 of the logits holds NaN or infinity in float32 \(1"),
        ({"logits": LOGITS + 1e300}, r"row 0 of the logits holds .* in float32 \(60 such rows\)"),
        ({"classes": ["a", "c", "b"]}, "its classes are a, c, b, and those of toy are a, b, c"),
        ({"classes": np.array("a")}, r"classes has shape \(\); needed: one axis"),
        ({"classes": np.array([b"a", b"b", b"\xff"])}, "classes cannot be read as text"),
        ({"labels": OTHER}, r"made for other data: from row 7 on its labels .* \(1 such rows\)"),
        ({"labels": OTHER[1:]}, r"labels are int64 of shape \(59,\)"),
        ({"labels": OTHER.astype(str)}, "labels are <U"),
        ({"logits": np.array([None])}, "holds Python objects"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        with_teacher(DATA, written(tmp_path, **changes))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no array 'text'"),
        (TEXT[:2], r"float64 of shape \(2, 5\); needed: floats of shape \(3, E\)"),
        (TEXT[0], r"of shape \(5,\)"),
        (TEXT * 0, "a row of text is zero or not finite"),
        (TEXT + np.inf, "a row of text is zero or not finite"),
    ],
)
def test_prototypes_that_do_not_fit_are_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_prototypes(written(tmp_path, text=text), 3)


def test_nothing_is_written_that_would_be_refused(tmp_path):
    path = tmp_path / "teacher.npz"
    for bad in (LOGITS[1:], LOGITS * np.nan):
        with pytest.raises(DataError, match="logits"):
            save_teacher(path, DATA, bad)
    with pytest.raises(DataError, match=r"ends in \.npz"):
        save_teacher(tmp_path / "teacher.csv", DATA, LOGITS)
    with pytest.raises(DataError, match="of shape"):
        save_teacher(path, DATA, LOGITS, TEXT[1:])
    assert not list(tmp_path.iterdir())
    with pytest.raises(DataError, match=r"missing\.npz does not exist"):
        with_teacher(replace(DATA), str(tmp_path / "missing.npz"))
