import csv
import io
import json

import pytest

from fedbb.runs.runner import run
from helpers.commands import fedbb
from helpers.disk_limit import disk_limit
from helpers.small_run import small_recipe


@pytest.fixture
def folder(tmp_path):
    list(run(small_recipe(tmp_path), tmp_path / "run"))
    return tmp_path / "run"


def test_predictions_are_printed_as_csv_and_scores_beside_them(folder, tmp_path, monkeypatch):
    data = small_recipe(tmp_path).data.path
    done = fedbb("predict", folder, data, monkeypatch=monkeypatch)
    assert done.code == 0
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert {"sample", "label", "predicted"} < set(rows[0])
    assert "balanced" in done.err


def test_a_file_is_written(folder, tmp_path, monkeypatch):
    data, out = small_recipe(tmp_path).data.path, tmp_path / "predictions.csv"
    done = fedbb("predict", folder, data, "--out", out, "--json", monkeypatch=monkeypatch)
    told = json.loads(done.out)
    assert told["samples"] == len(list(csv.DictReader(io.StringIO(out.read_text("utf-8")))))
    assert told["scores"]["macro"]["accuracy"] is not None


def test_what_cannot_be_read_is_one_message(folder, tmp_path, monkeypatch):
    done = fedbb("predict", folder, tmp_path / "nothing.npz", monkeypatch=monkeypatch)
    assert done.code == 2
    assert done.err == f"fedbb: {tmp_path / 'nothing.npz'} does not exist\n"
    done = fedbb("predict", tmp_path, "digits", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "is not a run folder: it has no recipe.json" in done.err
    missing = tmp_path / "no" / "p.csv"
    done = fedbb("predict", folder, "digits", "--out", missing, monkeypatch=monkeypatch)
    assert done.code == 2
    assert "is not a folder" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "RUN", "DATA", "--out", "OUT"),
        ("card", "RUN", "--out", "OUT"),
        ("export", "RUN", "--to", "state-dict", "--out", "OUT"),
        ("refit", "RUN", "--out", "OUT"),
    ],
    ids=lambda words: words[0],
)
def test_a_full_disk_is_one_message_and_leaves_nothing(words, folder, tmp_path, monkeypatch):
    places = {"RUN": folder, "OUT": tmp_path / "out" / "file"}
    places["DATA"] = small_recipe(tmp_path).data.path
    (tmp_path / "out").mkdir()
    with disk_limit():
        done = fedbb(*(places.get(word, word) for word in words), monkeypatch=monkeypatch)
    assert done.code == 2
    assert done.err == f"fedbb: {places['OUT']} cannot be written: File too large\n"
    assert list((tmp_path / "out").iterdir()) == []
