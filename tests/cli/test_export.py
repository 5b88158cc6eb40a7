import json

import pytest
import torch

from fedbb.runs.runner import run
from helpers.commands import fedbb
from helpers.small_run import small_recipe


@pytest.fixture
def folder(tmp_path):
    list(run(small_recipe(tmp_path), tmp_path / "run"))
    return tmp_path / "run"


def test_an_export_says_how_well_it_agrees(folder, tmp_path, monkeypatch):
    out = tmp_path / "model.pt"
    words = ("export", folder, "--to", "state-dict", "--out", out)
    told = json.loads(fedbb(*words, "--json", monkeypatch=monkeypatch).out)
    assert told == {"out": str(out), "format": "state-dict", "difference": 0.0}
    assert torch.load(out, weights_only=True)


def test_a_file_is_not_overwritten_unasked(folder, tmp_path, monkeypatch):
    out = tmp_path / "model.pt"
    out.write_text("mine")
    words = ("export", folder, "--to", "state-dict", "--out", out)
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert done.code == 2
    assert "--force" in done.err
    assert out.read_text() == "mine"
    assert fedbb(*words, "--force", monkeypatch=monkeypatch).code == 0


def test_an_unknown_format_is_refused(folder, monkeypatch):
    done = fedbb("export", folder, "--to", "tflite", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "onnx" in done.err
