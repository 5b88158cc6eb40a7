import numpy as np
import pytest

from fedbb.analysis.label_arrays import read_arrays
from fedbb.analysis.label_columns import Layout
from fedbb.errors import DataError


def test_labels_classes_clients_and_patients_are_read_and_images_are_not_needed(tmp_path):
    path = tmp_path / "labels.npz"
    np.savez(path, labels=[0, 1, 1], classes=["x", "y", "z"], site=["B", "A", "B"], who=[5, 5, 6])
    table = read_arrays(path, Layout(clients="site", patient="who"))
    assert table.labels.classes == ("x", "y", "z")
    assert table.clients == ("A", "B")
    assert table.owners.tolist() == [1, 0, 1]
    assert table.patients.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("arrays", "layout", "words"),
    [
        ({"label": [0]}, Layout(), "did you mean label"),
        ({"labels": [0, 1], "site": ["a"]}, Layout(clients="site"), r"site has shape \(1,\)"),
        ({"labels": [0, 1]}, Layout(clients="site"), "no array 'site'"),
        ({"labels": [[0, 3]]}, Layout(), "label 0, class 1 is 3"),
        ({"labels": np.array([{}])}, Layout(), "cannot read"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, layout, words):
    path = tmp_path / "labels.npz"
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=words):
        read_arrays(path, layout)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "labels.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match="cannot read"):
        read_arrays(path)
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(DataError, match="cannot read"):
        read_arrays(tmp_path / "single.npy")
