"""Runs under a robust rule: equal bits on every engine, and records that name who is left out."""

import pytest

from fedbb.errors import QuorumError, RecipeError
from fedbb.recipes.reader import make_recipe
from fedbb.runs.folder import RunFolder
from helpers.cover import cover, few
from helpers.small_run import finish, small_values, without_seconds, write_npz

DEFENSES = {
    "clip": {"rule": "clip", "max_norm": 0.2},
    "median": {"rule": "median", "byzantine": 1},
    "trimmed-mean": {"rule": "trimmed-mean", "byzantine": 1},
    "krum": {"rule": "krum", "byzantine": 1},
    "multi-krum": {"rule": "multi-krum", "byzantine": 1},
}


def defended(folder, defense, **changes):
    path = write_npz(folder / "small.npz")
    partition = {"kind": "even", "clients": 5}
    data = {"name": "npz", "path": str(path), "partition": partition}
    return make_recipe(small_values(path, data=data, defense=defense, **changes))


@pytest.mark.parametrize("rule", few(DEFENSES, 2))
def test_a_rule_gives_the_same_bits_on_every_engine(tmp_path, rule):
    told = {}
    for engine in ("inline", "pool"):
        recipe = defended(tmp_path, DEFENSES[rule], engine=engine, rounds={"number": 2})
        summary, records = finish(recipe, tmp_path / engine)
        told[engine] = (summary, without_seconds(records))
    assert told["inline"] == told["pool"]
    records = told["inline"][1]
    kept = {"krum": 1, "multi-krum": 4}.get(rule, 5)
    assert [len(record["clients"]) for record in records] == [kept] * 2
    assert [len(record["absent"]) for record in records] == [5 - kept] * 2
    for record in records:
        weights = [client["weight"] for client in record["clients"]]
        assert sum(weights) == pytest.approx(1.0)
        assert all(each["reason"].startswith(f"left out by {rule}") for each in record["absent"])
    if rule == "median":
        assert weights == pytest.approx([0.2] * 5)


@pytest.mark.parametrize(
    ("method", "rule"),
    cover(["fednova", "fednova+fedbb", "moon+fedbb", "fedalign"], ["clip", "krum", "multi-krum"]),
)
def test_rules_that_filter_go_with_every_method(tmp_path, method, rule):
    recipe = defended(tmp_path, DEFENSES[rule], method={"name": method}, rounds={"number": 2})
    _, records = finish(recipe, tmp_path / "run")
    assert len(records) == 2


def test_an_update_beyond_the_bound_is_left_out_by_name_and_the_run_stops(tmp_path):
    recipe = defended(tmp_path, {"max_norm": 1e-3, "attempts": 1})
    with pytest.raises(QuorumError, match="client 4: the norm of its update is"):
        finish(recipe, tmp_path / "run")


def test_a_wide_bound_changes_nothing(tmp_path):
    plain, _ = finish(defended(tmp_path, {}), tmp_path / "plain")
    for number, defense in enumerate(({"max_norm": 1e6}, {"rule": "clip", "max_norm": 1e6})):
        bounded, _ = finish(defended(tmp_path, defense), tmp_path / f"bounded-{number}")
        assert bounded == plain


def test_too_few_clients_are_noticed_once_the_data_is_divided(tmp_path):
    path = write_npz(tmp_path / "small.npz")
    finish(make_recipe(small_values(path, rounds={"number": 1})), tmp_path / "divided")
    partition = {"kind": "file", "path": str(tmp_path / "divided" / "partition.json")}
    data = {"name": "npz", "path": str(path), "partition": partition}
    recipe = make_recipe(small_values(path, data=data, defense=DEFENSES["krum"]))
    with pytest.raises(
        RecipeError, match="needs 5 clients in a round to tolerate 1 malicious ones, and 3 train"
    ):
        finish(recipe, tmp_path / "run")
    assert not RunFolder(tmp_path / "run").is_run()
