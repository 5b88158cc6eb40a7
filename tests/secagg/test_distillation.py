"""Private runs of methods that learn from public inputs: as in the open, or refused by name."""

import pytest

from fedbb.errors import RecipeError
from fedbb.recipes.check import check_recipe
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from helpers.small_run import finish, small_recipe, small_values

METHODS = {
    "feddf": {"steps": 4, "batch_size": 8, "lr": 1e-4},
    "feddf+bsm": {"feddf": {"steps": 4, "batch_size": 8, "lr": 1e-4}},
    "fedmd": {"batch_size": 8, "distance": "mse"},
    "rhfl": {"batch_size": 8, "confidence": "equal"},
}


def recipe_of(tmp_path, name, options, **changes):
    data = {**small_values(tmp_path / "small.npz")["data"], "public": {"images": 12}}
    method = {"name": name, "options": options}
    return small_recipe(tmp_path, data=data, method=method, rounds={"number": 2}, **changes)


@pytest.mark.parametrize("name", METHODS)
def test_a_private_run_is_the_open_one_up_to_rounding(tmp_path, name):
    finish(recipe_of(tmp_path, name, METHODS[name]), tmp_path / "open")
    finish(recipe_of(tmp_path, name, METHODS[name], privacy="masked"), tmp_path / "private")
    ours, theirs = (
        load_checkpoint(tmp_path / folder / "checkpoints" / "round-000002.safetensors")
        for folder in ("private", "open")
    )
    for key, tensor in theirs.state.params.items():
        assert (ours.state.params[key] - tensor).abs().max() < 1e-3
    for key, tensor in theirs.server.items():
        assert (ours.server[key] - tensor).abs().max() < 1e-3
    seen = RunFolder(tmp_path / "private").read_json("audit.json")["rounds"][0]
    assert seen["statistics"] == ["public-table.number", "public-table.table"]


@pytest.mark.parametrize(
    ("name", "part"), [("rhfl", "SingleTable of RHFL"), ("fedfusion", "Components of FedFusion")]
)
def test_a_method_that_looks_at_single_clients_is_refused_by_the_name_of_its_part(
    tmp_path, name, part
):
    with pytest.raises(RecipeError, match=f"reveals only sums over clients, and {part}"):
        check_recipe(recipe_of(tmp_path, name, {}, privacy="masked"))
