import json

import numpy as np
import pandas
import pytest

from fedbb.analysis.inspect import inspect
from fedbb.analysis.label_files import Layout, read_label_table
from fedbb.analysis.measures import Settings
from fedbb.analysis.tables import first_and_last
from fedbb.errors import DataError
from fedbb.partition.registry import Rule
from helpers.columns import NA, Column, Frame


def test_everything_is_json_without_nan_even_where_figures_are_not_defined():
    found = inspect(np.zeros((3, 2), dtype=int), ["a", "b", "b"])
    plain = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert plain["classes"]["ratio"] is None
    assert plain["tally"]["positive"] == [[0, 0], [0, 0]]
    assert plain["samples"] == 3
    assert plain["tally"]["task"] == "multilabel"


def test_a_notebook_shows_classes_clients_warnings_and_advice_and_no_markup_of_theirs():
    found = inspect([0, 1, 1], ["<b>", "y", "y"], classes=["<script>", "dog & cat"])
    shown = found._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "dog &amp; cat" in shown
    assert "&lt;b&gt;" in shown
    assert "<script" not in shown
    assert "Advice" in shown


def test_clients_by_rule_are_those_a_run_would_have():
    labels = np.arange(400) % 4
    found = inspect(labels, Rule("label-skew", 4, 0.3, seed=5))
    assert found.statistics.samples.sum() == 400
    assert found.statistics.clients == ("0", "1", "2", "3")


def test_clients_named_by_numbers_stand_in_their_order():
    found = inspect([0, 1, 0], [10, 9, 2])
    assert found.statistics.clients == ("2", "9", "10")
    assert found.statistics.positive.tolist() == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("clients", [[1], [[1, 2]], 5])
def test_clients_that_do_not_fit_the_labels_are_refused(clients):
    with pytest.raises(DataError, match="clients have shape"):
        inspect([0, 1], clients)


def test_a_table_too_large_to_hold_is_refused():
    many = np.arange(10_000)
    with pytest.raises(DataError, match="coarser column"):
        inspect(many, many)


@pytest.mark.parametrize(
    "wrong",
    [
        {"beta": 1.0},
        {"tau": 0.0},
        {"mu": -1.0},
        {"gamma": 2.0},
        {"reading": "x"},
        {"batch_size": 0},
        {"saturation": 1.0},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Settings(**wrong)


def test_long_lists_keep_both_ends():
    assert first_and_last(range(3), 5) == [0, 1, 2]
    assert first_and_last(range(10), 4) == [0, 1, 8, 9]


@pytest.mark.parametrize("wrap", [list, np.array, lambda names: np.array(names, object), Column])
def test_text_labels_keep_their_names(wrap):
    found = inspect(wrap(["dog", "cat", "dog"]), wrap(["north", "south", "north"]))
    assert found.statistics.classes == ("cat", "dog")
    assert found.statistics.clients == ("north", "south")
    assert found.statistics.positive.tolist() == [[0, 2], [1, 0]]
    given = inspect(wrap(["dog", "cat", "dog"]), classes=["dog", "horse", "cat"])
    assert given.statistics.classes == ("dog", "horse", "cat")
    assert given.statistics.positive.tolist() == [[2, 0, 1]]


def test_nullable_columns_are_read_and_missing_values_named():
    found = inspect(Column([2, 0, 2]), Column([7, 7, 8]))
    assert found.statistics.positive.tolist() == [[1, 0, 1], [0, 0, 1]]
    assert found.statistics.clients == ("7", "8")
    with pytest.raises(DataError, match="label 1 is nan"):
        inspect(Column([0, NA, 2]))
    with pytest.raises(DataError, match="label 1 is <NA> among text"):
        inspect(Column(["a", NA]))
    with pytest.raises(DataError, match="clients: sample 1 has none"):
        inspect([0, 1], Column([1, NA]))


def test_a_frame_of_labels_names_its_classes_and_missing_marks_are_unknown():
    frame = Frame(["edema", "mass"], [[1, 0], [NA, 1], [0, 1]])
    found = inspect(frame)
    assert found.statistics.classes == ("edema", "mass")
    assert found.statistics.positive.tolist() == [[1, 2]]
    assert found.statistics.negative.tolist() == [[1, 1]]


def test_columns_of_a_frame_are_named_and_keep_their_names():
    frame = pandas.DataFrame(
        {
            "finding": ["mass", "none", "mass", "none", "none"],
            "hospital": ["Lyon", "Bern", "Bern", "Lyon", "Lyon"],
            "patient": [1, 2, 2, 3, 1],
            "flu": [0, 1, 1, 0, 0],
            "cough": [1, 1, 0, 0, 1],
        }
    )
    found = inspect(frame, labels="finding", clients="hospital", patients="patient")
    counts = found.to_frame("counts")
    assert counts.loc["Lyon"].to_dict() == {"mass": 1, "none": 2}
    assert counts.index.name == "client"
    clients = found.to_frame()
    assert clients.loc["Bern", "samples"] == 2
    assert clients["fedavg_weight"].sum() == pytest.approx(1)
    assert found.to_frame("classes").loc["mass", "positive"] == 2
    marks = inspect(frame, labels=["flu", "cough"], clients="hospital")
    assert marks.statistics.classes == ("flu", "cough")
    assert marks.to_frame("counts").loc["Bern", "flu"] == 2
    same = inspect(labels=frame["finding"], clients=frame["hospital"])
    assert same.to_frame("counts").equals(counts)
    with pytest.raises(DataError, match=r"DataFrame has no column 'findings'.*finding"):
        inspect(frame, labels="findings")
    with pytest.raises(DataError, match="list has no columns"):
        inspect([0, 1], labels="finding")
    with pytest.raises(DataError, match=r"labels are the text 'labels\.csv'; give an array"):
        inspect("labels.csv")
    with pytest.raises(DataError, match="first argument"):
        inspect(labels=[0, 1], clients="hospital")
    with pytest.raises(ValueError, match="level is 'rows'"):
        found.to_frame("rows")


def test_a_parquet_file_is_inspected_as_its_csv_is(tmp_path):
    frame = pandas.DataFrame({"label": ["a", "b", "a"], "site": ["x", "y", "x"], "n": [1.5, 2, 3]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    layout = Layout(clients="site")
    one, two = (read_label_table(tmp_path / f"t.{end}", layout) for end in ("parquet", "csv"))
    assert one.clients == two.clients == ("x", "y")
    assert one.labels.as_array().tolist() == two.labels.as_array().tolist()
    frame.assign(label=["a", None, "b"]).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: line 3, column label: there is no class"):
        read_label_table(tmp_path / "t.parquet", layout)
