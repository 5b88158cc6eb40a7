"""Mean and deviation of all clients' inputs by a secure sum: exact, and the same everywhere."""

import numpy as np
import pytest

from fedbb.data.statistics import ChannelSums, channel_sums, federated_statistics
from fedbb.errors import DataError, RecipeError
from fedbb.inference.model import load_model
from fedbb.recipes.check import check_recipe
from fedbb.runs.federation import prepare
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.small_run import finish, small_recipe


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e7])
def test_sums_of_limbs_are_those_of_the_open_run_at_any_scale(scale):
    rng = np.random.default_rng(0)
    parts = [scale * rng.normal(1.0, 2.0, (size, 3, 4)) for size in (5, 1, 40)]
    clients = [channel_sums(part) for part in parts]
    limbs = np.sum([client.to_limbs() for client in clients], axis=0)
    whole = ChannelSums.from_limbs(limbs, len(clients)).as_vector()
    exact = np.sum([client.as_vector() for client in clients], axis=0)
    np.testing.assert_allclose(whole, exact, rtol=1e-15, atol=3 * 2.0**-61)
    mean, std = federated_statistics([ChannelSums.from_vector(whole)])
    pooled = np.concatenate(parts).transpose(1, 0, 2).reshape(3, -1)
    if scale == 1e-9:  # a square of 1e-18 is a unit of 2^-60: the deviation keeps few digits
        return
    np.testing.assert_allclose(mean, pooled.mean(axis=1), rtol=1e-9)
    np.testing.assert_allclose(std, pooled.std(axis=1), rtol=1e-9)


@pytest.mark.parametrize("value", [np.inf, np.nan, 2.0**66])
def test_sums_that_do_not_fit_are_refused_by_their_client(value):
    with pytest.raises(DataError, match=r"not finite, or 2\^66 or larger"):
        ChannelSums(1.0, np.array([value]), np.array([1.0])).to_limbs()


def federated(folder, **changes):
    recipe = small_recipe(folder, **changes)
    data = recipe.data.model_copy(update={"normalize": "federated"})
    return recipe.model_copy(update={"data": data})


@pytest.mark.parametrize("privacy", ["masked", "bfv"])
def test_a_private_run_normalizes_by_the_secure_sum_and_resumes(tmp_path, privacy):
    if privacy == "bfv":
        pytest.importorskip("tenseal")
    recipe = federated(tmp_path, privacy=privacy, rounds={"number": 2})
    summary, _ = finish(recipe, tmp_path / "private")
    theirs = prepare(recipe.model_copy(update={"privacy": "none"})).dataset
    info = load_model(tmp_path / "private").info
    assert info.mean == pytest.approx(theirs.mean, rel=1e-12)
    assert info.std == pytest.approx(theirs.std, rel=1e-12)
    seen = RunFolder(tmp_path / "private").read_json("audit.json")["statistics"]["measured"]
    assert np.shape(seen["channel-sums"]) == (3, 4)
    records = run(recipe, tmp_path / "part")
    next(records)
    records.close()
    assert finish(recipe, tmp_path / "part", resume=True)[0]["sha256"] == summary["sha256"]


def test_differential_privacy_covers_no_sums_of_inputs(tmp_path):
    recipe = federated(tmp_path, privacy="masked", dp={"clip": 1.0, "noise": 1.0})
    with pytest.raises(RecipeError, match=r"dp and data\.normalize .* exclude each other"):
        check_recipe(recipe)
