"""Run folders read from Python: one as a `Result`, many as a table."""

import math
import shutil

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb.data.registry import load_dataset
from fedbb.errors import RecipeError, RunError
from fedbb.runs.checkpoint import load_checkpoint, save_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.small_run import small_recipe
from helpers.toy import toy_dataset

LOCAL = fedbb.LocalConfig(batch_size=8, lr=0.05)


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run of a recipe, one from Python, and one that was left after a round."""
    base = tmp_path_factory.mktemp("runs")
    recipe = small_recipe(base / "data", rounds={"number": 3})
    list(run(recipe, base / "a-recipe"))
    data = toy_dataset()
    clients = fedbb.partition.iid(data, clients=3)
    options = {"model": net, "local": LOCAL, "rounds": 2, "seed": 4, "out": base / "b-python"}
    fedbb.simulate(data, clients, method="cbr", validation=0.2, **options)
    left = run(recipe.model_copy(update={"seed": 1}), base / "c-left")
    next(left)
    left.close()
    return base


def test_a_run_of_a_recipe_is_read_with_its_scores_and_its_model(runs):
    summary = RunFolder(runs / "a-recipe").read_json("summary.json")
    found = fedbb.read_run(runs / "a-recipe")
    assert dict(found.final) == summary["final"]["scores"]["test"]["macro"]
    assert dict(found.best) == summary["best"]["scores"]["test"]["macro"]
    assert (found.best_round, found.sha256) == (summary["best"]["round"], summary["sha256"])
    assert (found.folder, found.chosen_on) == (runs / "a-recipe", "test")
    assert [record.round for record in found.history] == [1, 2, 3]
    data = load_dataset("npz", path=runs / "data" / "small.npz")
    guesses = found.predictor.predict(data.test.inputs).argmax(axis=1)
    assert (guesses == data.test.labels).mean() == pytest.approx(found.final["accuracy"])


def test_the_model_is_read_without_the_data(runs, tmp_path):
    recipe = small_recipe(tmp_path / "data", rounds={"number": 1})
    list(run(recipe, tmp_path / "run"))
    shutil.rmtree(tmp_path / "data")
    found = fedbb.read_run(tmp_path / "run")
    assert found.predictor.predict(np.zeros((2, 1, 8, 8), np.uint8)).shape == (2, 3)
    assert not found.best_model.training


def test_a_model_without_a_description_is_read_with_the_data_of_its_recipe(runs, tmp_path):
    shutil.copytree(runs / "a-recipe", tmp_path / "old")
    path = tmp_path / "old" / "final.safetensors"
    save_checkpoint(path, load_checkpoint(path))
    images = load_dataset("npz", path=runs / "data" / "small.npz").test.inputs
    old, new = (fedbb.read_run(folder) for folder in (tmp_path / "old", runs / "a-recipe"))
    assert np.array_equal(old.predictor.predict(images), new.predictor.predict(images))


def test_a_run_from_python_needs_its_network_for_the_model_only(runs):
    found = fedbb.read_run(runs / "b-python")
    assert found.chosen_on == "validation"
    assert found.recipe.method.name == "cbr"
    with pytest.raises(RunError, match=r"test_frames:net.*model="):
        _ = found.model
    given = net()
    before = given[1].weight.clone()
    read = fedbb.read_run(runs / "b-python", model=given)
    data = toy_dataset()
    guesses = read.model(torch.tensor(data.test.inputs)).argmax(dim=1).numpy()
    assert (guesses == data.test.labels).mean() == pytest.approx(read.final["accuracy"])
    assert torch.equal(given[1].weight, before)
    made = fedbb.read_run(runs / "b-python", model=net)
    assert torch.equal(made.model[1].weight, read.model[1].weight)
    assert read.best_model is not read.model
    with pytest.raises(RunError, match="does not fit its network"):
        _ = fedbb.read_run(runs / "b-python", model=lambda: nn.Linear(16, 3)).model


def test_code_that_a_run_names_is_imported_only_if_it_is_allowed(tmp_path):
    model = {"name": "helpers.own_networks:lazy"}
    recipe = small_recipe(tmp_path / "data", model=model, rounds={"number": 1})
    with pytest.raises(RecipeError, match="allow_code=True"):
        fedbb.run(recipe, tmp_path / "run")
    done = fedbb.run(recipe, tmp_path / "run", allow_code=True)
    with pytest.raises(RecipeError, match="allow_code=True"):
        _ = fedbb.read_run(tmp_path / "run").model
    read = fedbb.read_run(tmp_path / "run", allow_code=True)
    assert torch.equal(read.model[1].weight, done.model[1].weight)


def test_an_unfinished_run_is_read_as_far_as_it_got(runs):
    found = fedbb.read_run(runs / "c-left")
    assert (len(found.history), found.best_round, found.sha256) == (1, 1, None)
    assert found.final == found.best == found.history[0].scores["test"]
    assert isinstance(found.best_model, nn.Module)
    with pytest.raises(RunError, match="unfinished and has no final model yet"):
        _ = found.model


def test_a_run_without_a_round_and_a_folder_without_a_run_are_refused(runs, tmp_path):
    records = run(small_recipe(tmp_path / "data"), tmp_path / "run")
    next(records)
    records.close()
    RunFolder(tmp_path / "run").file("rounds.jsonl").unlink()
    with pytest.raises(RunError, match="no finished round yet"):
        fedbb.read_run(tmp_path / "run")
    with pytest.raises(RunError, match=r"not a run folder: it has no recipe\.json"):
        fedbb.read_run(tmp_path)
    with pytest.raises(RunError, match="holds no runs"):
        fedbb.read_runs(tmp_path / "data")


def test_the_table_of_runs_has_a_row_for_each_with_scores_and_settings(runs):
    frame = fedbb.read_runs(runs)
    assert [path.rpartition("/")[2] for path in frame["run"]] == ["a-recipe", "b-python", "c-left"]
    assert frame["finished"].tolist() == [True, True, False]
    assert frame["rounds"].tolist() == [3, 2, 1]
    assert frame["seed"].tolist() == [0, 4, 1]
    assert frame["data"].tolist() == ["small", "toy", "small"]
    assert frame["method"].tolist() == ["fedbb", "cbr", "fedbb"]
    for place, name in enumerate(["a-recipe", "b-python"]):
        found, row = fedbb.read_run(runs / name), frame.iloc[place]
        for metric, value in found.final.items():
            assert row[f"final_{metric}"] == value
            assert row[f"best_{metric}"] == found.best[metric]
        assert (row["best_round"], row["sha256"]) == (found.best_round, found.sha256)
    assert frame["recipe.local.lr"].tolist() == [0.05] * 3
    assert (frame["seconds"] > 0).all()


def test_the_row_of_an_unfinished_run_leaves_open_what_is_not_known_yet(runs):
    row = fedbb.read_runs(runs).iloc[2]
    assert row["final_accuracy"] == fedbb.read_run(runs / "c-left").final["accuracy"]
    assert math.isnan(row["best_accuracy"])
    assert math.isnan(row["best_round"])
