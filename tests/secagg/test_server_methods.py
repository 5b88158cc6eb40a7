"""Private runs of methods with server steps: as in the open, and refused by name where not."""

import pytest

from fedbb.errors import RecipeError
from fedbb.methods import registry
from fedbb.recipes.check import check_recipe
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.slot_method import slot_method
from helpers.small_run import finish, small_recipe


@pytest.mark.parametrize("name", ["scaffold", "fedavgm"])
def test_a_private_run_is_the_open_one_up_to_rounding_and_resumes_to_the_bit(tmp_path, name):
    method, rounds = {"name": name}, {"number": 3}
    open_recipe = small_recipe(tmp_path, method=method, rounds=rounds)
    private = small_recipe(tmp_path, method=method, rounds=rounds, privacy="masked")
    finish(open_recipe, tmp_path / "open")
    summary, _ = finish(private, tmp_path / "private")
    ours, theirs = (
        load_checkpoint(tmp_path / folder / "final.safetensors").state
        for folder in ("private", "open")
    )
    for key, tensor in theirs.params.items():
        assert (ours.params[key] - tensor).abs().max() < 1e-4
    records = run(private, tmp_path / "part")
    next(records)
    records.close()
    assert finish(private, tmp_path / "part", resume=True)[0]["sha256"] == summary["sha256"]
    seen = RunFolder(tmp_path / "private").read_json("audit.json")["rounds"][0]
    parameters = [f"scaffold.{key}" for key in sorted(theirs.params)]
    assert seen.get("statistics", []) == (parameters if name == "scaffold" else [])


@pytest.mark.parametrize(
    ("drop", "reason"),
    [
        ((), "DrawSome of all slots needs the figures of single clients"),
        (("sampling",), "StartLoss of all slots needs the figures of single clients"),
        (("sampling", "each"), "All of all slots needs the figures of single clients"),
    ],
)
def test_a_part_that_needs_more_than_sums_is_refused_by_its_name(
    tmp_path, monkeypatch, drop, reason
):
    made = slot_method()
    parts = {name: getattr(made, name) for name in ("sampling", "statistics", "server")}
    if "sampling" in drop:
        del parts["sampling"]
    if "each" in drop:
        parts["statistics"] = parts["statistics"][1:]
    monkeypatch.setitem(registry.METHODS, "slots", lambda: type(made)("all slots", **parts))
    recipe = small_recipe(tmp_path, method={"name": "slots"}, privacy="masked")
    with pytest.raises(RecipeError, match=reason):
        check_recipe(recipe)
