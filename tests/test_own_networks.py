"""Networks of the user's own give the same bits wherever clients train."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb.errors import RecipeError
from fedbb.runs.checkpoint import load_checkpoint
from helpers.commands import fedbb as command
from helpers.cover import cover, few
from helpers.digest_runs import CLIENTS, recipe_of
from helpers.flower_loopback import flower_run, open_loopback, take_identity
from helpers.own_networks import NETWORKS, install_tokens, own_recipe
from helpers.small_run import finish

ROOT = Path(__file__).parents[1]
KINDS = ("plain", "regularized", "tied", "frozen", "lazy", "tokens")


def inline(folder, network, **changes):
    recipe = own_recipe(folder, network, **changes)
    return finish(recipe, folder / "inline", allow_code=True)[0]["sha256"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Register the data of token ids, and skip a network whose package is not installed."""
    install_tokens(tmp_path / "site", monkeypatch)

    def check(network):
        package = NETWORKS[network]["name"].partition(":")[0]
        reason = f"{package.partition('.')[0]} is not installed, or lacks a package"
        pytest.importorskip(package, reason=reason, exc_type=ImportError)

    return check


@pytest.mark.parametrize(("network", "workers"), few(cover(NETWORKS, [1, 2, 3]), 3))
def test_the_pool_gives_the_bits_of_one_process(network, workers, installed, tmp_path):
    if network != "mlp":
        installed(network)
    recipe = own_recipe(tmp_path, network, engine="pool")
    ended = finish(recipe, tmp_path / "pool", workers=workers, allow_code=True)[0]
    assert ended["sha256"] == inline(tmp_path, network)


@pytest.mark.parametrize(("network", "score"), few(cover(NETWORKS, ["server", "sites"]), 3))
def test_flower_gives_the_bits_of_one_process(network, score, installed, tmp_path, monkeypatch):
    name = NETWORKS[network]["name"]
    if network != "mlp":
        installed(network)
    expected = inline(tmp_path, network)
    take_identity(monkeypatch)
    recipe = own_recipe(tmp_path, network)
    monkeypatch.setenv("FEDBB_ALLOWED_CODE", name)
    config = {"state": str(tmp_path / "state"), "allowed-code": f"other:build, {name}"}
    grid = open_loopback(recipe, CLIENTS, **config)
    assert flower_run(recipe, tmp_path / "flower", grid, score=score)[0]["sha256"] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases",
    [
        (*(f"inline:{kind}" for kind in KINDS), "flower:regularized", "pool:regularized"),
        pytest.param([f"flower:{kind}" for kind in KINDS], marks=pytest.mark.slow),
        pytest.param([f"pool:{kind}" for kind in KINDS], marks=pytest.mark.slow),
    ],
    ids=["every kind", "every kind on Flower", "every kind in workers"],
)
def test_a_killed_run_is_resumed_to_the_bit(cases, tmp_path):
    program = [sys.executable, "-m", "helpers.own_network_kills", str(tmp_path), *cases]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT / "tests")])}
    ended = subprocess.run(
        program, capture_output=True, text=True, timeout=280, env=environment, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert list(found) == list(cases)
    for whole, resumed, saved in found.values():
        assert resumed == whole
        assert saved in (1, 2)


@pytest.mark.parametrize("network", few(["plain", "regularized", "tied"], 1))
def test_moon_takes_the_input_of_the_classifier_and_remembers_models(network, tmp_path):
    expected = inline(tmp_path, network, method="moon", rounds={"number": 3})
    recipe = own_recipe(tmp_path, network, "moon", rounds={"number": 3}, engine="pool")
    ended = finish(recipe, tmp_path / "pool", workers=2, allow_code=True)[0]
    assert ended["sha256"] == expected


@pytest.mark.parametrize(
    "method",
    ["scaffold", *(pytest.param(m, marks=pytest.mark.slow) for m in ("feddyn", "fedadam", "moon"))],
)
@pytest.mark.parametrize("network", ["frozen", "tied"])
def test_methods_with_memory_give_the_same_bits_on_flower(network, method, tmp_path, monkeypatch):
    recipe = own_recipe(tmp_path, network, method)
    expected = finish(recipe, tmp_path / "inline", allow_code=True)[0]["sha256"]
    take_identity(monkeypatch)
    monkeypatch.setenv("FEDBB_ALLOWED_CODE", recipe.model.name)
    config = {"state": str(tmp_path / "state"), "allowed-code": recipe.model.name}
    grid = open_loopback(recipe, CLIENTS, **config)
    assert flower_run(recipe, tmp_path / "flower", grid)[0]["sha256"] == expected


@pytest.mark.parametrize("privacy", ["masked"])
def test_secure_aggregation_takes_own_networks(privacy, tmp_path):
    recipe = own_recipe(tmp_path, "regularized", privacy=privacy)
    first = finish(recipe, tmp_path / "first", allow_code=True)[0]["sha256"]
    pooled = own_recipe(tmp_path, "regularized", privacy=privacy, engine="pool")
    assert finish(pooled, tmp_path / "pool", workers=2, allow_code=True)[0]["sha256"] == first


def test_frozen_parameters_stay_what_they_were_and_others_do_not(tmp_path):
    recipe = own_recipe(tmp_path, "frozen", rounds={"number": 1})
    finish(recipe, tmp_path / "one", allow_code=True)
    recipe = own_recipe(tmp_path, "frozen", rounds={"number": 3})
    finish(recipe, tmp_path / "three", allow_code=True)
    early, late = (
        load_checkpoint(tmp_path / name / "final.safetensors").state.params
        for name in ("one", "three")
    )
    same = {name for name in early if early[name].equal(late[name])}
    assert same == {"conv.weight", "conv.bias", "norm.weight"}


def test_a_run_begins_with_the_weights_of_a_file_and_frozen_parts_keep_them(tmp_path, monkeypatch):
    finish(own_recipe(tmp_path, "plain"), tmp_path / "first", allow_code=True)
    file = tmp_path / "first" / "final.safetensors"
    model = {**NETWORKS["plain"], "weights": str(file), "freeze": ["1.bias"], "classifier": "3"}
    recipe = recipe_of(tmp_path, "multiclass moon+fedbb", model=model)
    expected = finish(recipe, tmp_path / "second", allow_code=True)[0]["sha256"]
    before, after = (
        load_checkpoint(tmp_path / name / "final.safetensors").state.params
        for name in ("first", "second")
    )
    same = {name for name in before if before[name].equal(after[name])}
    assert same == {"1.bias"}
    take_identity(monkeypatch)
    monkeypatch.setenv("FEDBB_ALLOWED_CODE", model["name"])
    config = {"state": str(tmp_path / "state"), "allowed-code": model["name"]}
    ended = flower_run(recipe, tmp_path / "flower", open_loopback(recipe, CLIENTS, **config))[0]
    assert ended["sha256"] == expected


@pytest.mark.parametrize("network", ["regularized", "tied", "lazy"])
def test_a_trained_network_is_loaded_predicts_and_is_exported(network, tmp_path, monkeypatch):
    recipe, run = own_recipe(tmp_path, network, rounds={"number": 1}), tmp_path / "run"
    finish(recipe, run, allow_code=True)
    with pytest.raises(RecipeError, match=r"helpers\.own_networks:.*allow_code=True"):
        fedbb.load_model(run)
    data = tmp_path / "multiclass.npz"
    expected = fedbb.load_model(run, allow_code=True).predict(np.load(data)["images"][:, None])
    out = tmp_path / "predicted.csv"
    words = ("predict", run, data, "--allow-code", "--out", out)
    assert command(*words, monkeypatch=monkeypatch).code == 0
    rows = np.genfromtxt(out, delimiter=",", skip_header=1)[:, -3:]
    assert rows == pytest.approx(expected, abs=1e-6)
    words = ("export", run, "--to", "pt2", "--allow-code", "--out", tmp_path / "model.pt2")
    done = command(*words, monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    refused = command("predict", run, data, monkeypatch=monkeypatch)
    assert refused.code == 2
    assert "--allow-code" in refused.err


def test_code_of_a_recipe_does_not_run_unless_it_is_allowed(tmp_path, monkeypatch):
    recipe = own_recipe(tmp_path, "plain")
    with pytest.raises(RecipeError, match=r"own_networks:plain.*--allow-code"):
        finish(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(RecipeError, match="own_networks:plain"):
        finish(recipe, tmp_path / "run", allow_code=["helpers.own_networks:other"])
    with pytest.raises(RecipeError, match="FEDBB_ALLOWED_CODE"):
        flower_run(recipe, tmp_path / "flower")
    monkeypatch.setenv("FEDBB_ALLOWED_CODE", NETWORKS["plain"]["name"])
    take_identity(monkeypatch)
    with pytest.raises(Exception, match="allowed-code"):
        flower_run(recipe, tmp_path / "flower", wait=0.1)


SCRIPT = """
import sys
from torch import nn
from fedbb.methods import fedavg
from fedbb.runs.runtime import make_network
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool.pool import Pool
from fedbb.runs.checkpoint import ClientStateFiles
from fedbb.state import digest, snapshot
from fedbb.training.config import LocalConfig, TrainJob
from helpers.toy import toy_dataset, toy_shares
from pathlib import Path

print("started")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 3)

    def forward(self, images):
        return self.fc(images.flatten(1))

def trained(engine, state):
    return [digest(u.state) for u in engine.train([TrainJob(k, 1, 0, state) for k in range(3)])]

data, local = toy_dataset(), LocalConfig()
network = make_network(lambda: Net(), fedavg(), data, local, seed=0)
engine = Inline(network, toy_shares(data), fedavg(), local, ClientStateFiles(Path(sys.argv[1])))
state = snapshot(network)
alone = trained(engine, state)
with Pool(engine, {"test": data.test}, workers=2) as pool:
    assert trained(pool, state) == alone
print("equal")
"""


@pytest.mark.slow
def test_a_class_of_a_script_without_a_guard_works_in_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    program = [sys.executable, str(script), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        program, capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == ["started", "equal"]


def test_token_ids_reach_an_embedding_as_whole_numbers():
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 3
    words = rng.integers(0, 12, (80, 5))
    words[:, 0] = labels
    data = fedbb.Dataset.from_arrays(words[:60], labels[:60], words[60:], labels[60:])
    clients = fedbb.partition.iid(data, clients=3, seed=0)
    alone, pooled = (
        fedbb.simulate(
            data,
            clients,
            # The lazy layer takes its shape from the embeddings of token ids.
            model=lambda: nn.Sequential(nn.Embedding(12, 8), nn.Flatten(), nn.LazyLinear(3)),
            method="moon+fedbb",
            local=fedbb.LocalConfig(epochs=5, lr=0.3, batch_size=8),
            rounds=4,
            workers=workers,
        )
        for workers in (0, 2)
    )
    assert pooled.sha256 == alone.sha256
    assert alone.final["accuracy"] > 0.9
    assert alone.model(torch.from_numpy(words[60:])).argmax(1).tolist() == labels[60:].tolist()
