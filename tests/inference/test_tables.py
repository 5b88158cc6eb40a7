"""Models of tables take raw rows outside their run: columns, categories and gaps as in training."""

import csv
import gzip
import io
import json

import numpy as np
import pandas
import pytest

import fedbb
from fedbb.data.registry import load_dataset
from fedbb.data.sets.features import table_of_frame
from fedbb.data.tabular import Encoder, FeatureColumns
from fedbb.errors import DataError, RunError
from fedbb.inference.model import load_model
from fedbb.inference.prediction import predict, read_samples
from fedbb.runs.model_info import ModelInfo
from helpers.commands import fedbb as call

RNG = np.random.default_rng(0)
ROWS = pandas.DataFrame(
    {
        "id": [f"r{number}" for number in range(60)],
        "age": RNG.integers(20, 90, 60).astype(float),
        "dose": RNG.normal(1000, 3, 60),
        # Not in alphabetical order, which the keys of a model file's description are sorted in.
        "zone": RNG.choice(["north", "south"], 60),
        "arm": RNG.choice(["drug", "placebo", "none"], 60),
        "class": RNG.choice([1, 2, 3], 60).astype(str),
        "part": ["train", "train", "test"] * 20,
        "outcome": RNG.choice(["better", "worse"], 60),
    }
)
ROWS.loc[[0, 4, 5], "age"] = np.nan
ROWS.loc[3, "arm"] = None
TEST = ROWS[ROWS["part"] == "test"].reset_index(drop=True)
OPTIONS = {
    "class_column": "outcome",
    "id_column": "id",
    "split_column": "part",
    "categorical": ["zone", "arm", "class"],
    "missing": "median",
    "indicator": True,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("tables")
    ROWS.to_csv(place / "trial.csv", index=False)
    recipe = {
        "engine": "inline",
        "data": {
            "name": "features",
            "path": str(place / "trial.csv"),
            "options": OPTIONS,
            "partition": {"kind": "even", "clients": 2},
        },
        "model": {"name": "mlp"},
        "method": {"name": "fedbb"},
        "rounds": {"number": 1},
    }
    fedbb.run(recipe, out=place / "run")
    return place / "run"


def write(folder, frame, ending):
    path = folder / f"outside{ending}"
    match ending:
        case ".csv":
            frame.to_csv(path, index=False)
        case ".csv.gz":
            path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
        case ".parquet":
            frame.to_parquet(path)
        case ".npz":
            numbers = frame[["dose", "age"]].to_numpy(float)
            texts = {
                name: frame[name].fillna("").to_numpy(dtype=str)
                for name in frame.columns
                if name not in ("age", "dose")
            }
            np.savez(path, features=numbers, feature_names=["dose", "age"], **texts)
    return path


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".npz"])
def test_raw_rows_outside_give_the_scores_of_the_run(run, tmp_path, ending):
    model = load_model(run)
    shuffled = TEST[sorted(TEST.columns, reverse=True)]
    samples = read_samples(write(tmp_path, shuffled, ending), model.info)
    data = load_dataset("features", path=run.parent / "trial.csv", options=OPTIONS)
    assert np.array_equal(samples.inputs, data.test.inputs)
    assert samples.names == tuple(TEST["id"])
    found = predict(model, samples)
    expected = json.loads((run / "summary.json").read_text())["final"]["scores"]["test"]["macro"]
    assert found.scores.macro["accuracy"] == pytest.approx(expected["accuracy"])
    assert found.scores.macro["auroc"] == pytest.approx(expected["auroc"])


def test_frames_and_mappings_are_rows_as_well(run):
    model = load_model(run)
    expected = model.predict(model.encode(TEST))
    assert np.array_equal(model.predict(TEST), expected)
    columns = {name: TEST[name].to_numpy() for name in TEST.columns}
    assert np.array_equal(model.predict(columns), expected)
    assert np.array_equal(model.predict(TEST[["class", "arm", "zone", "dose", "age"]]), expected)


def test_rows_without_labels_and_names_are_predicted(run, tmp_path, monkeypatch):
    rows = TEST[["arm", "zone", "class", "age", "dose"]]
    done = call("predict", run, write(tmp_path, rows, ".csv"), monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    found = list(csv.DictReader(io.StringIO(done.out)))
    # `class` is a feature here, and no label.
    assert list(found[0]) == ["sample", "predicted", "p(better)", "p(worse)"]
    assert [row["sample"] for row in found] == [str(number) for number in range(20)]
    assert "no labels, so no scores" in done.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zone": "west"}, "line 4, column zone: no training row had 'west'; known: north, s"),
        ({"age": "old"}, "line 4, column age: 'old' is not a number"),
        ({"dose": "inf"}, "line 4, column dose: the number is infinite"),
        ({"outcome": "same"}, "line 4, column outcome: 'same' is not a class"),
        ({"age": None, "arm": None}, "no column 'age', 'arm'"),
        ({"zone": None}, "no column 'zone'; did you mean zones?"),
    ],
)
def test_a_table_that_does_not_fit_is_one_message(run, tmp_path, monkeypatch, change, message):
    rows = TEST.astype(str).replace({"nan": "", "None": ""})
    rows["zones"] = "1"
    for column, value in change.items():
        if value is None:
            rows = rows.drop(columns=column)
        else:
            rows.loc[2, column] = value
    path, out = write(tmp_path, rows, ".csv"), tmp_path / "predictions.csv"
    done = call("predict", run, path, "--out", out, monkeypatch=monkeypatch)
    assert done.code == 2
    assert f"{path}: {message}" in " ".join(done.err.split())
    assert not out.exists()


def test_unknown_categories_are_zeros_if_they_are_allowed(run, tmp_path, monkeypatch):
    rows = TEST.copy()
    rows.loc[2, "zone"] = "west"
    path = write(tmp_path, rows, ".csv")
    done = call("predict", run, path, "--allow-unknown", monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    model = load_model(run)
    names = model.info.table.encoder.features
    entries = [place for place, name in enumerate(names) if name.startswith("zone=")]
    assert len(entries) == 2
    assert model.encode(rows, allow_unknown=True)[2, entries].tolist() == [0, 0]
    with pytest.raises(DataError, match="row 2, column zone: no training row had 'west'"):
        model.predict(rows)


def test_a_gap_is_refused_if_training_had_none():
    data = fedbb.Dataset.from_frame(TEST[["dose", "outcome"]], "outcome", TEST)
    with pytest.raises(DataError, match="x row 1, column dose: the value is missing; set missing"):
        data.table.encode(table_of_frame({"dose": [1, np.nan]}, "x"))


def test_a_python_run_and_the_embedded_table_describe_their_columns():
    data = load_dataset("breast-cancer")
    clients = fedbb.partition.iid(data, clients=2, seed=0)
    model = fedbb.simulate(data, clients, model="linear", rounds=1).predictor
    rows = dict(zip(data.features, np.asarray(data.test.inputs).T, strict=True))
    assert np.array_equal(model.predict(rows), model.predict(data.test.inputs))


def test_a_model_without_columns_says_so(folder, tmp_path):
    model = load_model(folder)
    with pytest.raises(DataError, match="not trained on a table of named columns"):
        model.predict({"x": [1.0]})
    vectors = ModelInfo("linear", "multiclass", ("a", "b"), (2,), "float32")
    (tmp_path / "x.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match="does not describe columns that become one"):
        read_samples(tmp_path / "x.csv", vectors)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fill": {"age": 1.0}}, "fill has one number for each numeric column"),
        ({"categories": {}}, "categories has one list for each"),
        ({"columns": {"numeric": ["age", "age"], "categorical": []}}, "columns"),
        ({"flagged": []}, "table has one entry for each number of an input"),
        ({"more": 1}, "more"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(run, change, words):
    content = json.loads((run / "model.json").read_text())
    content["table"]["encoder"] |= change
    with pytest.raises(RunError, match=words):
        ModelInfo.from_json(content, "model.json")


def test_a_column_is_named_once():
    with pytest.raises(ValueError, match="named twice"):
        Encoder(FeatureColumns(("a",), ("a",), "refuse", False), {"a": 0.0}, {"a": ()}, ())
