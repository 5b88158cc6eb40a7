"""Federations at the edge of sense: defined results, no NaN, from data file to summary."""

import numpy as np
import pytest

from fedbb.methods import METHODS, build_method
from fedbb.recipes.reader import make_recipe
from fedbb.records import Task
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from fedbb.state import is_finite
from helpers.cover import few
from helpers.suited_settings import network_of, public_data
from helpers.teachers import teacher_options

SITES = np.array(["one image"] + ["one class"] * 9 + ["all"] * 23 + ["test"] * 12)


def write_data(path, task, size=8):
    """Four classes, of which "never" occurs nowhere; 23 = 2 · 11 + 1 leaves a last batch of one."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([[0], np.full(9, 1), np.arange(35) % 3])
    if task == "multilabel":
        rows = np.zeros((len(labels), 4), dtype=np.float32)
        rows[np.arange(len(labels)), labels] = 1
        rows[:10, 2] = np.nan
        rows[15] = 0
        labels = rows
    images = rng.integers(0, 256, (len(labels), size, size), dtype=np.uint8)
    split = np.where(SITES == "test", "test", "train")
    classes = np.array(["a", "b", "c", "never"])
    np.savez(path, images=images, labels=labels, split=split, site=SITES, classes=classes)
    return path


def run_odd(tmp_path, task, method, model="small-cnn", **changes):
    path = write_data(tmp_path / "odd.npz", task, changes.pop("size", 8))
    recipe = make_recipe(
        {
            "data": {
                "name": "npz",
                "path": str(path),
                "partition": {"kind": "column", "column": "site"},
                **public_data(method, path),
            },
            "model": {"name": model},
            "method": {"name": method, "options": teacher_options(method, path)},
            "local": {"batch_size": 11},
            "rounds": {"number": 2},
            **changes,
        }
    )
    records = list(run(recipe, tmp_path / "run"))
    return RunFolder(tmp_path / "run"), records


SUITED = [
    (name, str(task)) for name in METHODS for task in Task if build_method(name, {}).supports(task)
]


@pytest.mark.parametrize(("method", "task"), few(SUITED, 14))
def test_one_image_one_class_and_a_class_nobody_has_give_defined_results(tmp_path, task, method):
    folder, records = run_odd(tmp_path, task, method, network_of(method)["name"])
    assert is_finite(load_checkpoint(folder.file("final.safetensors")).state)
    assert all(np.isfinite(c["train_loss"]) for record in records for c in record["clients"])
    scores = records[-1]["scores"]["test"]
    assert scores["per_class"]["auroc"][3] is None
    assert scores["defined"]["auroc"] == 3
    assert scores["macro"]["auroc"] is not None
    assert "no client holds a case of never" in folder.read_json("federation.json")["notes"]


@pytest.mark.parametrize("size", [4, 8])
def test_batch_norm_survives_a_client_of_one_image(tmp_path, size):
    # At 4 × 4 pixels the last stage is 1 × 1, so a batch of one has one value per channel.
    folder, _ = run_odd(tmp_path, "multiclass", "fedbb", "resnet11", size=size)
    assert is_finite(load_checkpoint(folder.file("final.safetensors")).state)


def test_a_single_client_is_its_own_federation(tmp_path):
    path = write_data(tmp_path / "odd.npz", "multiclass")
    partition = {"kind": "even", "clients": 1}
    data = {"name": "npz", "path": str(path), "partition": partition}
    _, records = run_odd(tmp_path, "multiclass", "fedbb", data=data)
    assert [client["weight"] for client in records[0]["clients"]] == [1.0]
