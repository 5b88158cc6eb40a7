import gzip

import numpy as np
import pandas
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fedbb
from fedbb.data.registry import load_dataset
from fedbb.data.transforms import normalize
from fedbb.errors import DataError
from helpers.commands import fedbb as call

RNG = np.random.default_rng(0)
FRAME = pandas.DataFrame(
    {
        "id": [f"r{number}" for number in range(40)],
        "age": RNG.integers(20, 90, 40).astype(float),
        "dose": RNG.normal(1000, 3, 40),
        "stage": RNG.choice(["I", "II", "III"], 40),
        "site": RNG.choice(["Bern", "Graz", "Lyon"], 40),
        "patient": np.arange(40) // 2,
        "part": ["train", "train", "train", "test"] * 10,
        "outcome": RNG.choice(["better", "worse"], 40),
    }
)
GAPS = FRAME.copy()
GAPS.loc[[0, 5], "age"] = np.nan
GAPS.loc[3, "stage"] = None
USE = {"class_column": "outcome", "columns": ["site"], "group": "patient", "ignore": ["id"]}


def write(folder, frame, ending):
    path = folder / f"trial{ending}"
    match ending:
        case ".csv":
            frame.to_csv(path, index=False)
        case ".csv.gz":
            path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
        case ".parquet":
            frame.to_parquet(path)
    return path


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_every_kind_of_file_is_the_frame_that_it_was_made_of(tmp_path, ending) -> None:
    options = {**USE, "split_column": "part", "missing": "mean", "indicator": True}
    path = write(tmp_path, GAPS, ending)
    data = load_dataset("features", path=path, options=options)
    given = {key: value for key, value in options.items() if key != "class_column"}
    frame = fedbb.Dataset.from_frame(GAPS, "outcome", **given)
    assert data.features == frame.features
    assert data.features[:3] == ("age", "dose", "age missing")
    assert np.array_equal(data.train.inputs, frame.train.inputs)
    assert data.test.labels.tolist() == frame.test.labels.tolist()
    assert (data.mean, data.std) == (frame.mean, frame.std)
    assert set(data.train.columns) == {"site", "patient"}
    assert (len(data.train), len(data.test)) == (30, 10)


def test_inputs_are_those_of_scikit_learn() -> None:
    train, test = GAPS[:30], GAPS[30:].copy()
    test.loc[32, "stage"] = "IV"
    data = fedbb.Dataset.from_frame(
        train, "outcome", test, numeric=["age", "dose"], categorical=["stage"], missing="median"
    )
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    categories = OneHotEncoder(categories=[["I", "II", "III"]], handle_unknown="ignore")
    theirs = ColumnTransformer(
        [("n", numbers, ["age", "dose"]), ("c", categories, ["stage"])], sparse_threshold=0
    ).fit(train)
    for part, frame in ((data.train, train), (data.test, test)):
        ours = normalize(part.inputs, data.mean, data.std).numpy()
        assert ours == pytest.approx(theirs.transform(frame), abs=2e-4)
    assert data.notes == (
        "1 test rows have a stage that no training row has; all of its entries are 0",
    )
    assert data.test.inputs[2, 2:].tolist() == [0, 0, 0]


def test_statistics_are_of_the_training_rows_alone() -> None:
    far = FRAME[30:].assign(age=1e6)
    data = fedbb.Dataset.from_frame(FRAME[:30], "outcome", far, numeric=["age"])
    assert data.mean == pytest.approx((FRAME.age[:30].mean(),))
    assert data.std == pytest.approx((FRAME.age[:30].std(ddof=0),))


@pytest.mark.parametrize(("missing", "value"), [("zero", 0.0), ("mean", 3.0), ("median", 2.0)])
def test_a_missing_number_follows_the_policy(missing, value) -> None:
    rows = {"x": ["1", "2", "6", "", "NA"], "y": [0, 1, 0, 1, 0]}
    data = fedbb.Dataset.from_frame(rows, "y", rows, missing=missing, indicator=True)
    assert data.train.inputs[3:].tolist() == [[value, 1.0]] * 2
    assert data.train.inputs[:3, 1].tolist() == [0.0] * 3
    assert data.scaled == (True, False)


def test_an_array_of_features_is_a_table_as_well(tmp_path) -> None:
    path = tmp_path / "deep.npz"
    matrix = RNG.normal(size=(20, 3)).astype(np.float32)
    site = np.array(["a", "b"] * 10)
    np.savez(path, features=matrix, label=np.arange(20) % 3, site=site)
    data = load_dataset(
        "features", path=path, options={"class_column": "label", "columns": ["site"]}
    )
    assert data.features == ("0", "1", "2")
    assert sorted(np.vstack([data.train.inputs, data.test.inputs]).tolist()) == sorted(
        matrix.tolist()
    )
    assert fedbb.partition.by_column(data, "site").sizes == [
        int((data.train.columns["site"] == name).sum()) for name in "ab"
    ]


def test_several_columns_of_marks_are_multi_label() -> None:
    marks = {"flu": [0, 1, 1, 0], "cough": [1, 1, 0, 0], "x": [1.5, 2.5, 3.5, 4.5]}
    data = fedbb.Dataset.from_frame(marks, ["flu", "cough"], marks)
    assert data.task == "multilabel"
    assert data.train.labels.tolist() == [[0, 1], [1, 1], [1, 0], [0, 0]]
    assert data.features == ("x",)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_a_recipe_makes_each_site_a_client(tmp_path, model) -> None:
    recipe = {
        "engine": "inline",
        "data": {
            "name": "features",
            "path": str(write(tmp_path, GAPS, ".csv")),
            "options": {**USE, "missing": "mean", "split_column": "part"},
            "partition": {"kind": "column", "column": "site"},
        },
        "model": {"name": model},
        "method": {"name": "fedbb"},
        "rounds": {"number": 1},
    }
    assert len(fedbb.run(recipe).history[0].clients) == 3


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("age", 4, "old", "line 6, column age: 'old' is not a number"),
        ("age", 4, "", "line 6, column age: the value is missing; set missing to"),
        ("age", 4, "inf", "line 6, column age: the number is infinite"),
        ("stage", 4, "", "line 6, column stage: the value is missing"),
        ("outcome", 4, "", "line 6, column outcome: there is no class name"),
        ("id", 4, "r1", "line 6, column id: r1 is at"),
        ("part", 4, "other", "line 6, column part: the split is 'other'"),
    ],
)
def test_a_malformed_value_is_named_by_file_and_line(
    tmp_path, monkeypatch, column, row, value, message
) -> None:
    frame = FRAME.astype(str)
    frame.loc[row, column] = value
    path = write(tmp_path, frame, ".csv")
    sets = {
        "class_column": "outcome",
        "id_column": "id",
        "split_column": "part",
        "numeric": '["age","dose"]',
        "categorical": '["stage"]',
    }
    words = [word for key, text in sets.items() for word in ("--set", f"{key}={text}")]
    result = call("data", "check", "features", "--path", path, *words, monkeypatch=monkeypatch)
    assert result.code == 2
    assert f"{path}: {message}" in " ".join(result.err.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_column": "result"}, "no column 'result'"),
        ({}, "by either label_columns or class_column"),
        ({**USE, "ignore": ["ID"]}, "no column 'ID'"),
        ({**USE, "numeric": ["outcome"]}, "'outcome' is a label or a group"),
        ({**USE, "numeric": ["weight"]}, "no column 'weight'"),
        ({**USE, "missing": "drop"}, "missing"),
        ({**USE, "ignored": []}, "option 'ignored' is unknown"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset("features", path=write(tmp_path, FRAME, ".csv"), options=options)


def test_a_column_of_names_is_no_feature_by_accident() -> None:
    many = {"name": [f"n{i}" for i in range(150)], "x": np.arange(150.0), "y": [0, 1] * 75}
    with pytest.raises(DataError, match="'name' has 150 different texts; name it as categorical"):
        fedbb.Dataset.from_frame(many, "y", many)
    kept = fedbb.Dataset.from_frame(many, "y", many, categorical=["name"])
    assert kept.input_shape == (151,)


def test_damaged_files_are_one_message(tmp_path, monkeypatch) -> None:
    path = tmp_path / "trial.parquet"
    path.write_bytes(b"PAR1 and no more")
    result = call(
        "data",
        "check",
        "features",
        "--path",
        path,
        "--set",
        "class_column=y",
        monkeypatch=monkeypatch,
    )
    assert result.code == 2
    assert f"cannot read {path} as parquet" in " ".join(result.err.split())
    with pytest.raises(DataError, match="needs test data, test_share or split_column"):
        fedbb.Dataset.from_frame(FRAME, "outcome")
    np.savez(tmp_path / "x.npz", features=np.zeros(3))
    with pytest.raises(DataError, match=r"features is float64 of shape \(3,\)"):
        load_dataset("features", path=tmp_path / "x.npz", options={"class_column": "y"})
