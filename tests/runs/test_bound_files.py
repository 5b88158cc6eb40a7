"""A resumed run needs the files that it began with: public inputs and first weights."""

import numpy as np
import pytest
import torch

from fedbb.errors import RunError
from fedbb.models.registry import build_model
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.small_run import small_recipe, write_npz


def begun(recipe, folder):
    """Run a recipe for its first round only."""
    rounds = run(recipe, folder)
    next(rounds)
    rounds.close()


def test_changed_public_inputs_are_refused_by_name(tmp_path):
    write_npz(tmp_path / "small.npz")
    public = write_npz(tmp_path / "public.npz")
    data = {
        "name": "npz",
        "path": str(tmp_path / "small.npz"),
        "partition": {"kind": "even", "clients": 3},
        "public": {"name": "npz", "path": str(public), "images": 10},
    }
    options = {"batch_size": 8}
    recipe = small_recipe(
        tmp_path,
        data=data,
        model={"name": "linear"},
        method={"name": "fedmd", "options": options},
        rounds={"number": 2},
    )
    begun(recipe, tmp_path / "run")
    sha256 = RunFolder(tmp_path / "run").read_json("federation.json")["digests"]["data.public"]
    arrays = dict(np.load(public))
    np.savez(public, **{**arrays, "images": 255 - arrays["images"]})
    with pytest.raises(RunError, match=f"data.public is not what the run began with.*{sha256}"):
        list(run(recipe, tmp_path / "run", resume=True))
    np.savez(public, **arrays)
    assert [record["round"] for record in run(recipe, tmp_path / "run", resume=True)] == [2]


def test_changed_first_weights_are_refused_by_name(tmp_path):
    """Clients that took no part yet begin with them."""
    weights = {"head.weight": torch.zeros(3, 64), "head.bias": torch.zeros(3)}
    named = {"name": "linear", "weights": str(tmp_path / "first.pt")}
    recipe = small_recipe(
        tmp_path, model=named, method={"name": "local"}, rounds={"number": 2, "participation": 0.4}
    )
    names = list(network_names(recipe))
    torch.save(dict(zip(names, weights.values(), strict=True)), tmp_path / "first.pt")
    begun(recipe, tmp_path / "run")
    torch.save(dict(zip(names, (t + 1 for t in weights.values()), strict=True)), named["weights"])
    with pytest.raises(RunError, match=r"model\.weights is not what the run began with"):
        list(run(recipe, tmp_path / "run", resume=True))


def network_names(recipe):
    return build_model(recipe.model.name, 3, (1, 8, 8)).state_dict()


def test_a_folder_without_digests_is_resumed(tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 2})
    begun(recipe, tmp_path / "run")
    assert "digests" not in RunFolder(tmp_path / "run").read_json("federation.json")
    assert [record["round"] for record in run(recipe, tmp_path / "run", resume=True)] == [2]
