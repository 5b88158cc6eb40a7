import json

import numpy as np
import pytest

import fedbb
from fedbb.data.registry import load_dataset
from helpers.commands import fedbb as call
from helpers.hugging_face import png, save_split

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
CLASS = {"names": ["cat", "dog"], "_type": "ClassLabel"}
TEXT = {"dtype": "string", "_type": "Value"}


def save_images(folder, rows=slice(None)):
    held = [{"bytes": png(image), "path": None} for image in IMAGES[rows]]
    labels = (np.arange(20) % 2)[rows]
    sites = np.array(["Bern", "Graz", "Lyon", "Bern"] * 5)[rows].tolist()
    columns = {"image": held, "label": labels, "site": sites}
    return save_split(folder, columns, {"image": {"_type": "Image"}, "label": CLASS, "site": TEXT})


def test_a_saved_data_set_has_images_class_names_and_columns(tmp_path) -> None:
    path = save_images(tmp_path / "pets")
    data = load_dataset("hf", path=path, options={"columns": ["site"], "test_share": 0.25})
    assert (data.name, data.classes, data.input_shape) == ("pets", ("cat", "dog"), (3, 6, 5))
    assert (len(data.train), len(data.test)) == (15, 5)
    both = np.concatenate([data.train.inputs, data.test.inputs])
    assert sorted(both.sum((1, 2, 3))) == sorted(IMAGES.astype(np.uint64).sum((1, 2, 3)))
    assert len(fedbb.partition.by_column(data, "site")) == 3
    assert len(data.mean) == 3


def test_saved_splits_are_the_parts(tmp_path) -> None:
    parts = {"train": slice(0, 12), "validation": slice(12, 15), "test": slice(15, 20)}
    for part, rows in parts.items():
        save_images(tmp_path / "pets" / part, rows)
    (tmp_path / "pets" / "dataset_dict.json").write_text(json.dumps({"splits": list(parts)}))
    data = load_dataset("hf", path=tmp_path / "pets", options={"size": 4})
    assert (len(data.train), len(data.validation), len(data.test)) == (12, 3, 5)
    assert data.input_shape == (3, 4, 4)


def test_arrays_have_the_type_of_their_column_and_lists_are_multi_label(
    tmp_path,
) -> None:
    columns = {
        "x": RNG.integers(0, 256, (12, 2, 3)).tolist(),
        "input_ids": RNG.integers(0, 50, (12, 4)).tolist(),
        "labels": [[0], [1, 2], [], [0, 1, 2]] * 3,
    }
    names = {"names": ["a", "b", "c"], "_type": "ClassLabel"}
    features = {
        "x": {"shape": [2, 3], "dtype": "uint8", "_type": "Array2D"},
        "input_ids": {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "List"},
        "labels": {"feature": names, "_type": "List"},
    }
    path = save_split(tmp_path / "mixed", columns, features, files=3)
    data = load_dataset("hf", path=path, options={"input_key": "x"})
    assert data.train.inputs.dtype == np.uint8
    assert data.task == "multilabel"
    assert data.classes == ("a", "b", "c")
    tokens = load_dataset("hf", path=path, options={"input_key": "input_ids"})
    assert tokens.train.inputs.dtype == np.int32
    assert tokens.mean == ()
    marks = np.concatenate([tokens.train.labels, tokens.test.labels])
    assert sorted(marks.sum(axis=1).tolist()) == sorted([1.0, 2.0, 0.0, 3.0] * 3)


def test_the_library_itself_gives_the_same_as_its_saved_folder(tmp_path) -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed")
    path = save_images(tmp_path / "pets")
    live = fedbb.Dataset.from_hf(datasets.load_from_disk(path), columns=["site"], test_share=0.2)
    saved = load_dataset("hf", path=path, options={"columns": ["site"]})
    assert np.array_equal(live.train.inputs, saved.train.inputs)
    assert live.classes == saved.classes
    assert live.train.columns["site"].tolist() == saved.train.columns["site"].tolist()


class Rows(list):
    """Rows with the features of a data set, as Hugging Face's have them."""

    def __init__(self, rows, features):
        super().__init__(rows)
        self.features = features


def test_rows_and_splits_in_memory_are_read_by_column_name() -> None:
    rows = [{"scan": [float(n), 1.0], "kind": n % 2, "site": "ab"[n % 2]} for n in range(10)]
    features = {"scan": {"feature": {"dtype": "float32"}}, "kind": CLASS, "site": TEXT}
    splits = {"train": Rows(rows, features), "test": Rows(rows[:4], features)}
    given = {"input_key": "scan", "label_key": "kind", "columns": ["site"], "normalize": True}
    data = fedbb.Dataset.from_hf(splits, **given)
    assert data.classes == ("cat", "dog")
    assert data.train.inputs[:, 0].tolist() == list(range(10))
    assert data.mean == (4.5, 1.0)
    again = fedbb.Dataset.from_hf(splits["train"], splits["test"], **given)
    assert np.array_equal(again.test.inputs, data.test.inputs)


def spoil(path, how):
    state = path / "state.json"
    match how:
        case "no state":
            state.unlink()
        case "outside":
            state.write_text('{"_data_files": [{"filename": "../data.arrow"}]}')
        case "cut":
            file = path / "data-00000-of-00001.arrow"
            file.write_bytes(file.read_bytes()[:200])
        case "no image":
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
            held = [{"bytes": png(IMAGES[0]), "path": None}, {"bytes": b"no", "path": None}] * 3
            features = {"image": {"_type": "Image"}, "label": CLASS}
            save_split(path, {"image": held, "label": [0, 1] * 3}, features)


@pytest.mark.parametrize(
    ("how", "options", "message"),
    [
        ("no state", [], "is not a data set that save_to_disk made: cannot read state.json"),
        ("outside", [], "state.json: '../data.arrow' is not a file in this folder"),
        ("cut", [], "as Arrow"),
        ("no image", [], "row 1, column image: the image cannot be read"),
        ("", ["label_key=kind"], "row 0 has no 'kind'"),
        ("", ["group=patient"], "row 0 has no 'patient'"),
    ],
)
def test_a_malformed_folder_is_one_message(tmp_path, monkeypatch, how, options, message) -> None:
    path = save_images(tmp_path / "pets")
    spoil(path, how)
    words = [word for option in options for word in ("--set", option)]
    result = call("data", "check", "hf", "--path", path, *words, monkeypatch=monkeypatch)
    assert result.code == 2
    assert message in " ".join(result.err.split())
