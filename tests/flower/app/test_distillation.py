"""Methods that learn from public inputs, and FedFusion, on Flower: the inline engine's bits."""

from dataclasses import replace

import numpy as np
import pytest

from fedbb.errors import FedbbError
from fedbb.flower.app.server import serve
from fedbb.flower.app.settings import RunSettings
from fedbb.flower.app.transport import GridTransport
from fedbb.runs.checkpoint import load_checkpoint
from helpers.cover import few
from helpers.flower_loopback import FIRST_NODE, flower_run, open_loopback, take_identity
from helpers.small_run import finish, small_recipe, without_seconds, write_npz

SKEW = {"kind": "label-skew", "clients": 3, "concentration": 0.5, "min_samples": 4}
METHODS = {
    "feddf": {"steps": 4, "batch_size": 8},
    "fedmd": {"batch_size": 8},
    "rhfl": {"batch_size": 8},
    "fedfusion": {"components": 3, "steps": 3},
}


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


NETWORKS = {"by_client": ["linear", {"name": "mlp", "options": {"hidden": [6]}}]}


def recipe_of(tmp_path, name, public=None, **further):
    data = {"name": "npz", "path": str(tmp_path / "small.npz"), "partition": SKEW}
    data["public"] = public or {"images": 12}
    method = {"name": name, "options": METHODS[name]}
    if name == "fedfusion":
        further = {"model": {"name": "resnet11"}}
    rounds = {"number": 2}
    return small_recipe(tmp_path, data=data, method=method, rounds=rounds, **further)


@pytest.mark.parametrize("name", few(METHODS, 2))
def test_a_recipe_gives_the_inline_engines_bits(tmp_path, name):
    recipe = recipe_of(tmp_path, name)
    inline, inline_records = finish(recipe, tmp_path / "inline")
    flower, flower_records = flower_run(recipe, tmp_path / "flower")
    assert flower == inline
    assert without_seconds(flower_records) == without_seconds(inline_records)
    ours, theirs = (
        load_checkpoint(tmp_path / folder / "checkpoints" / "round-000002.safetensors").server
        for folder in ("flower", "inline")
    )
    assert ours.keys() == theirs.keys()
    assert all(ours[key].equal(theirs[key]) for key in theirs)


@pytest.mark.parametrize("name", ["fedmd", pytest.param("rhfl", marks=pytest.mark.slow)])
def test_clients_with_different_networks_have_the_inline_engines_bits(tmp_path, name):
    recipe = recipe_of(tmp_path, name, model=NETWORKS)
    inline, inline_records = finish(recipe, tmp_path / "inline")
    grid = open_loopback(recipe, state=str(tmp_path / "sites"))
    flower, flower_records = flower_run(recipe, tmp_path / "flower", grid)
    assert flower == inline
    assert without_seconds(flower_records) == without_seconds(inline_records)
    ours, theirs = (
        load_checkpoint(tmp_path / folder / "checkpoints" / "round-000002.safetensors").server
        for folder in ("flower", "inline")
    )
    assert all(ours[key].equal(theirs[key]) for key in theirs)


@pytest.fixture
def two_files(tmp_path):
    """A recipe that names a file of public inputs, and another file of the same form."""
    path = write_npz(tmp_path / "public.npz")
    recipe = recipe_of(tmp_path, "fedmd", {"name": "npz", "path": str(path), "images": 10})
    arrays = dict(np.load(path))
    np.savez(tmp_path / "other.npz", **{**arrays, "images": 255 - arrays["images"]})
    return recipe, str(tmp_path / "other.npz")


def test_a_site_with_other_public_inputs_is_refused(tmp_path, two_files):
    recipe, other = two_files
    grid = open_loopback(recipe)
    grid.nodes[FIRST_NODE + 1].config["public-data"] = other
    with pytest.raises(FedbbError, match="the SHA-256 of public inputs is"):
        flower_run(recipe, tmp_path / "flower", grid)
    inline, _ = finish(recipe, tmp_path / "inline")
    flower, _ = flower_run(recipe, tmp_path / "sites", score="sites")
    assert flower["sha256"] == inline["sha256"]


def test_a_server_with_other_public_inputs_than_all_sites_is_refused(tmp_path, two_files):
    recipe, other = two_files
    grid = open_loopback(recipe)
    for node in grid.nodes.values():
        node.config["public-data"] = other
    with pytest.raises(FedbbError, match="the server has other public inputs"):
        flower_run(recipe, tmp_path / "flower", grid, score="sites")


@pytest.mark.slow
@pytest.mark.parametrize("score", ["server", "sites"])
def test_a_resumed_run_with_other_public_inputs_is_refused(tmp_path, score):
    path = str(write_npz(tmp_path / "public.npz"))
    recipe = recipe_of(tmp_path, "feddf", {"name": "npz", "path": path, "images": 10})
    transport = GridTransport(open_loopback(recipe), poll=0.01)
    settings = RunSettings(recipe, tmp_path / "run", score=score, wait=1.0)
    rounds = serve(transport, settings)
    next(rounds)
    rounds.close()
    arrays = dict(np.load(path))
    np.savez(path, **{**arrays, "images": 255 - arrays["images"]})
    with pytest.raises(FedbbError, match="public inputs"):
        list(serve(transport, replace(settings, resume=True)))
