"""Data sets, partitions, losses and networks of an installed package, used by a recipe."""

import json

import numpy as np
import pytest

import fedbb
from fedbb.data.registry import dataset_names, find_entry, load_dataset
from fedbb.errors import DataError, RecipeError
from fedbb.flower.app.prepared_data import FOLDER, open_client_data
from fedbb.flower.app.settings import SiteSettings
from fedbb.methods import build_method
from fedbb.partition.registry import Rule, divide
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.records import LabelCounts, Task
from fedbb.report.groups import gather, group
from helpers.commands import fedbb as command
from helpers.flower_loopback import flower_run, open_loopback, take_identity
from helpers.installed import install
from helpers.small_run import finish, small_recipe
from helpers.toy import toy_dataset

CODE = """
import numpy as np
from torch import nn
import fedbb

def tokens(source):
    rng = np.random.default_rng(source.seed)
    length, words = source.options.get("length", 6), 20
    labels = np.arange(90) % 3
    inputs = rng.integers(0, words, (90, length))
    inputs[:, 0] = labels
    return fedbb.Dataset.from_arrays(
        inputs[:60], labels[:60], inputs[60:], labels[60:], name="tokens"
    )

def halves(examples, task, *, seed, clients=2, first=0.5):
    owners = np.arange(len(examples)) % (clients - 1) + 1
    owners[: int(first * len(examples))] = 0
    return owners

def weighted(counts):
    import torch
    return nn.CrossEntropyLoss(weight=torch.tensor(1 / np.maximum(counts.positive, 1)).float())

def words(classes):
    return nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.LazyLinear(classes))

def not_a_dataset(source):
    return 3

def broken(*args, **more):
    raise KeyError("gone")

def floats(examples, task, *, seed):
    return np.zeros(len(examples))

def gap(examples, task, *, seed):
    return 2 * (np.arange(len(examples)) % 2)
"""
GROUPS = {
    "datasets": "my-tokens = my_plugin:tokens\nno-set = my_plugin:not_a_dataset\n"
    "broken-set = my_plugin:broken",
    "partitions": "halves = my_plugin:halves\nfloats = my_plugin:floats\ngap = my_plugin:gap\n"
    "broken = my_plugin:broken",
    "losses": "weighted = my_plugin:weighted\nnumber = my_plugin:CODE",
    "models": "words = my_plugin:words",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    install(tmp_path / "site", monkeypatch, "my_plugin", CODE + "\nCODE = 3", **GROUPS)


def recipe_of(**changes):
    values = {
        "engine": "inline",
        "data": {
            "name": "my-tokens",
            "options": {"length": 4},
            "partition": {"kind": "halves", "clients": 3, "options": {"first": 0.4}},
        },
        "model": {"name": "words"},
        "method": {"name": "fedbb", "loss": "weighted"},
        "local": {"batch_size": 8, "lr": 0.05},
        "rounds": {"number": 2},
    }
    return make_recipe({**values, **changes})


@pytest.mark.usefixtures("package")
def test_a_recipe_of_registered_parts_gives_the_same_bits_everywhere(tmp_path, monkeypatch):
    expected, _ = finish(recipe_of(), tmp_path / "inline")
    pooled, _ = finish(recipe_of(engine="pool"), tmp_path / "pool", workers=2)
    assert pooled["sha256"] == expected["sha256"]
    take_identity(monkeypatch)
    for score in ("server", "sites"):
        grid = open_loopback(recipe_of(), state=str(tmp_path / "state"))
        ended, _ = flower_run(recipe_of(), tmp_path / f"flower-{score}", grid, score=score)
        assert ended["sha256"] == expected["sha256"]
    saved = json.loads((tmp_path / "inline" / "partition.json").read_text())
    assert saved["rule"]["options"] == '{"first": 0.4}'
    assert [len(client) for client in saved["clients"]] == [24, 18, 18]
    plain, _ = finish(recipe_of(method={"name": "fedbb"}), tmp_path / "plain")
    assert plain["sha256"] != expected["sha256"]
    (compared,) = group(gather([tmp_path / "inline", tmp_path / "plain"]).runs)
    labels = [part.label for part in compared.methods]
    assert sorted(labels) == ["FedBB (defaults)", "FedBB (loss = weighted)"]


@pytest.mark.usefixtures("package")
def test_prepared_data_of_a_site_keeps_token_ids(tmp_path):
    site = SiteSettings(1, state=tmp_path / "state")
    first, again = (open_client_data(recipe_of(), site).train for _ in range(2))
    assert first.dataset.train.inputs.shape[1:] == (4,)
    kept = again.dataset.train
    assert isinstance(kept.inputs, np.memmap)
    assert kept.inputs.dtype == np.int64
    assert np.array_equal(kept.inputs, first.dataset.train.inputs[first.indices])


def test_prepared_data_is_made_anew_for_another_version_of_the_package(tmp_path, monkeypatch):
    site = SiteSettings(1, state=tmp_path / "state")
    for version in ("1.0", "1.1"):
        with monkeypatch.context() as patch:
            folder = tmp_path / version
            install(folder, patch, "my_plugin", CODE + "\nCODE = 3", version, **GROUPS)
            open_client_data(recipe_of(), site)
    assert len(list((tmp_path / "state" / FOLDER / "client-1").iterdir())) == 2


@pytest.mark.usefixtures("package")
def test_a_registered_data_set_is_listed_found_and_checked(monkeypatch):
    assert "my-tokens" in dataset_names()
    assert find_entry("my-tokens").task is None
    assert load_dataset("my-tokens", options={"length": 9}).train.inputs.shape == (60, 9)
    rows = json.loads(command("data", "list", "--json", monkeypatch=monkeypatch).out)
    assert "my-tokens" in {row["name"] for row in rows}
    with pytest.raises(DataError, match=r"did you mean my-tokens\?"):
        load_dataset("my-token")
    with pytest.raises(DataError, match="no-set data gives a int, not a"):
        load_dataset("no-set")
    with pytest.raises(DataError, match="broken-set data cannot be loaded: KeyError: 'gone'"):
        load_dataset("broken-set")


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Rule("halve"), r"unknown partition 'halve'; did you mean halves\?"),
        (Rule("floats"), "floats gives float64 of shape"),
        (Rule("gap"), "every client from 0 to 2 some examples"),
        (Rule("broken"), "broken cannot be made with {}: KeyError: 'gone'"),
        (Rule("halves", options={"third": 1}), "halves cannot be made with .*TypeError.*third"),
        (Rule("halves", concentration=1.0), "halves takes clients, options; concentration is none"),
        (Rule("even", clients=2, options={"a": 1}), "even takes clients; options is none"),
    ],
)
def test_a_registered_partition_that_does_not_divide_is_refused(rule, reason):
    with pytest.raises(DataError, match=reason):
        divide(rule, toy_dataset().train, Task.MULTICLASS)


@pytest.mark.usefixtures("package")
def test_a_loss_that_is_none_or_unknown_is_refused():
    with pytest.raises(RecipeError, match=r"method\.loss 'weight' is unknown.*weighted"):
        build_method("fedavg", {}, "weight")
    with pytest.raises(RecipeError, match="the loss is 3"):
        build_method("fedavg", {}, "number")


def test_without_any_package_a_loss_by_name_is_refused():
    with pytest.raises(RecipeError, match="no installed package registers a loss"):
        build_method("fedavg", {}, "weighted")


def test_a_loss_in_code_runs_only_if_it_is_allowed(tmp_path, monkeypatch):
    install(tmp_path / "site", monkeypatch, "my_plugin", CODE)
    loss = "my_plugin:weighted"
    recipe = small_recipe(tmp_path, method={"name": "fedavg", "loss": loss}, rounds={"number": 1})
    counts = LabelCounts(np.ones(3), np.ones(3), samples=3)
    # It can be checked without the code, and refuses to train then.
    with pytest.raises(RecipeError, match=r"method\.loss 'my_plugin:weighted'.*--allow-code"):
        check_recipe(recipe).loss.bind(counts, Task.MULTICLASS)
    with pytest.raises(RecipeError, match="--allow-code"):
        finish(recipe, tmp_path / "run")
    with pytest.raises(RecipeError, match="--allow-code"):
        fedbb.run(recipe, allow_code=["my_plugin:other"])
    expected, _ = finish(recipe, tmp_path / "run", allow_code=[loss])
    assert fedbb.run(recipe, allow_code=True).sha256 == expected["sha256"]
    take_identity(monkeypatch)
    with pytest.raises(RecipeError, match="FEDBB_ALLOWED_CODE"):
        flower_run(recipe, tmp_path / "flower")
    monkeypatch.setenv("FEDBB_ALLOWED_CODE", loss)
    with pytest.raises(Exception, match="allowed-code"):
        flower_run(recipe, tmp_path / "flower", wait=0.1)
    grid = open_loopback(recipe, **{"allowed-code": loss})
    assert flower_run(recipe, tmp_path / "flower", grid)[0]["sha256"] == expected["sha256"]


def test_a_recipe_without_the_new_keys_is_written_as_before(tmp_path):
    values = small_recipe(tmp_path).model_dump()
    assert "loss" not in values["method"]
    assert "options" not in values["data"]["partition"]
    loss = {"name": "fedavg", "loss": "weighted"}
    assert small_recipe(tmp_path, method=loss).model_dump()["method"]["loss"] == "weighted"
