"""Optimizers, schedules and the like give one result on all engines, and through resume."""

import pytest
import torch

from fedbb.errors import RecipeError
from fedbb.methods import METHODS
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from fedbb.runs.tuning import with_settings
from helpers.cover import cover, few
from helpers.digest_runs import CLIENTS, recipe_of
from helpers.flower_loopback import flower_run, open_loopback, take_identity
from helpers.small_run import finish, without_seconds, write_npz
from helpers.suited_settings import is_central, network_of, public_data
from helpers.teachers import teacher_options

BASIC = {"batch_size": 8, "lr": 0.01}
RICH = {
    "adam": {
        **BASIC,
        "optimizer": "adam",
        "betas": [0.8, 0.99],
        "schedule": {"kind": "cosine", "warmup": 1, "final": 0.1},
        "clip": 1.0,
        "accumulate": 2,
    },
    "adamw": {**BASIC, "optimizer": "adamw", "schedule": "cosine", "precision": "bf16"},
    "sgd": {**BASIC, "schedule": {"kind": "step", "milestones": [1], "gamma": 0.5}},
}
RATES = {
    "adam": [0.005, 0.01, 0.0055],
    "adamw": [0.01, 0.0075, 0.0025],
    "sgd": [0.01, 0.005, 0.005],
}


def recipe(folder, name, **changes):
    return recipe_of(
        folder, "multiclass moon+fedbb", local=RICH[name], rounds={"number": 3}, **changes
    )


@pytest.mark.parametrize("name", few(RICH, 1))
def test_all_engines_end_with_the_same_model(tmp_path, monkeypatch, name):
    take_identity(monkeypatch)
    inline, records = finish(recipe(tmp_path, name), tmp_path / "inline")
    assert [record["lr"] for record in records] == pytest.approx(RATES[name])
    pool, again = finish(recipe(tmp_path, name, engine="pool"), tmp_path / "pool", workers=2)
    assert pool["sha256"] == inline["sha256"]
    assert without_seconds(again) == without_seconds(records)
    grid = open_loopback(recipe(tmp_path, name), CLIENTS, state=str(tmp_path / "state"))
    flower, across = flower_run(recipe(tmp_path, name), tmp_path / "flower", grid)
    assert flower["sha256"] == inline["sha256"]
    assert [record["lr"] for record in across] == [record["lr"] for record in records]


def test_a_private_run_trains_by_the_same_schedule(tmp_path):
    ends = {}
    for privacy in ("none", "masked"):
        finish(recipe(tmp_path, "adam", privacy=privacy), tmp_path / privacy)
        ends[privacy] = load_checkpoint(tmp_path / privacy / "final.safetensors").state.params
    for name, tensor in ends["none"].items():
        assert torch.allclose(tensor, ends["masked"][name], atol=1e-3)


def test_a_constant_rate_is_not_in_the_records(tmp_path):
    _, records = finish(recipe_of(tmp_path, "multiclass fedavg"), tmp_path / "run")
    assert all("lr" not in record for record in records)


def left_and_resumed(recipe, folder):
    """Return the model of a run, and that of one which is left after its first round."""
    whole, _ = finish(recipe, folder / "whole")
    records = run(recipe, folder / "part")
    next(records)
    records.close()
    return whole["sha256"], finish(recipe, folder / "part", resume=True)[0]["sha256"]


ADAM_METHODS = [name for name in METHODS if not METHODS[name]().needs.sgd]


@pytest.mark.parametrize(("method", "engine"), few(cover(ADAM_METHODS, ["inline", "central"]), 6))
def test_adam_resumes_to_the_bit_with_every_method(tmp_path, engine, method):
    if engine == "central" and not is_central(method):
        engine = "inline"
    named = {
        "name": method,
        "options": teacher_options(method, write_npz(tmp_path / "multiclass.npz")),
    }
    local = {**BASIC, "optimizer": "adam"}
    changes = {"method": named, "local": local, "model": network_of(method)}
    recipe = recipe_of(tmp_path, f"multiclass {method}", engine=engine, **changes)
    public = {f"data.{key}": value for key, value in public_data(method).items()}
    one, two = left_and_resumed(with_settings(recipe, public), tmp_path)
    assert one == two


@pytest.mark.parametrize("name", few(RICH, 1))
def test_central_training_goes_on_with_its_optimizer(tmp_path, name):
    central = recipe_of(
        tmp_path, "multiclass fedbb", engine="central", local=RICH[name], rounds={"number": 3}
    )
    one, two = left_and_resumed(central, tmp_path)
    assert one == two
    folder = RunFolder(tmp_path / "part")
    kept = folder.client_states.load(0, 3).optimizer
    expected = ["momentum"] if name == "sgd" else ["exp_avg", "exp_avg_sq", "step"]
    assert list(kept) == expected
    if name != "sgd":
        steps = sum(record["clients"][0]["steps"] for record in folder.records())
        assert {int(step) for step in kept["step"].values()} == {steps}


def test_fednova_refuses_adam_by_name_before_a_folder_is_made(tmp_path):
    local = {**BASIC, "optimizer": "adam"}
    with pytest.raises(RecipeError, match=r'FedNova needs local\.optimizer = "sgd"'):
        next(run(recipe_of(tmp_path, "multiclass fednova", local=local), tmp_path / "run"))
    assert not (tmp_path / "run").exists()
