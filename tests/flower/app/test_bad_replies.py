"""A site that sends what cannot be: it is left out by name, and the run goes on."""

import numpy as np
import pytest

from fedbb.flower.app.serde import STATE, STATISTICS, pack_record, unpack_record
from fedbb.recipes.check import check_recipe
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.federation import prepare
from fedbb.runs.runtime import network_of
from helpers.flower_loopback import changing, flower_run, open_loopback, take_identity
from helpers.small_run import small_recipe

PUBLIC = {"images": 12}


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


def changed(part, change):
    """A fault: the arrays of a part of the reply are changed by this function."""

    def spoil(content):
        content[part] = pack_record(change(unpack_record(content, part)))

    return changing(spoil)


def first_with(arrays, word):
    return next(name for name in arrays if word in name)


def edited(word, edit):
    def change(arrays):
        name = first_with(arrays, word)
        return {**arrays, name: edit(arrays[name])}

    return change


def extended(arrays):
    return {**arrays, "params.more": np.zeros(3, np.float32)}


def run_with(tmp_path, name, options, faults, **model):
    """Run a method whose client 1 sends one fault in each round; return the reasons by round."""
    data = {
        "name": "npz",
        "path": str(tmp_path / "small.npz"),
        "partition": {"kind": "even", "clients": 3},
        "public": PUBLIC,
    }
    recipe = small_recipe(
        tmp_path,
        data=data,
        model=model or {"name": "mlp"},
        method={"name": name, "options": options},
        rounds={"number": len(faults) + 1},
    )
    grid = open_loopback(recipe, state=str(tmp_path / "sites"))
    for number, (fault, _) in enumerate(faults, start=1):
        grid.faults[1, number] = fault
    _, records = flower_run(recipe, tmp_path / "run", grid)
    for record, (_, reason) in zip(records, faults, strict=False):
        (absent,) = record["absent"]
        assert absent["client"] == 1
        assert f"client 1, round {record['round']}: " in absent["reason"]
        assert reason in absent["reason"]
        assert [client["client"] for client in record["clients"]] == [0, 2]
    assert records[-1]["absent"] == []
    return recipe


def test_personal_replies(tmp_path):
    faults = [
        (
            changed(STATE, edited("weight", lambda a: a * np.nan)),
            "holds values that are not finite",
        ),
        (changed(STATE, edited("weight", lambda a: a[:1])), "has shape"),
        (changed(STATE, extended), "adds 'params.more'"),
        (changed(STATE, moved_head), "stays with the client, and came changed"),
    ]
    recipe = run_with(tmp_path, "fedper", {}, faults)
    method, data = check_recipe(recipe), prepare(recipe).dataset
    network = network_of(recipe, method, data)
    first, names = network.state_dict(), method.personal.entries(network)
    final = load_checkpoint(tmp_path / "run" / "final.safetensors").state
    assert names
    assert all(final.params[name].equal(first[name]) for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["isfl", "pfedla", "ripfl"])
def test_replies_of_methods_with_figures_or_starts_of_each_client(tmp_path, name):
    nan = changed(STATE, edited("weight", lambda a: a * np.nan))
    cut = changed(STATE, edited("weight", lambda a: a[:1]))
    faults = [(nan, "not finite"), (cut, "has shape"), (changed(STATE, extended), "adds 'params.")]
    if name == "ripfl":
        faults.append((changed(STATISTICS, edited("reliability", lambda a: a * np.nan)), "finite"))
    run_with(tmp_path, name, {}, faults)


def moved_head(arrays):
    name = list(arrays)[-1]
    return {**arrays, name: arrays[name] + 1}


TABLE = "public-table.table"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rhfl", "fedmd"])
def test_table_replies(tmp_path, name):
    faults = [
        (changed(STATISTICS, edited(TABLE, lambda a: a * np.nan)), "not finite"),
        (changed(STATISTICS, edited(TABLE, lambda a: a[:, :1])), "has shape"),
        (changed(STATISTICS, extended), "adds 'params.more'"),
        (changed(STATISTICS, edited("number", lambda a: a + 4)), "it counts as 5 tables"),
    ]
    if name == "rhfl":
        faults += [
            (changed(STATISTICS, edited("private-loss", lambda a: a - 99)), "a loss is below 0"),
            (changed(STATISTICS, edited(TABLE, lambda a: a + 2)), "a probability is not from"),
        ]
    run_with(tmp_path, name, {"batch_size": 8}, faults)


@pytest.mark.slow
def test_replies_of_clients_with_different_networks(tmp_path):
    """No model is expected, and none is taken."""
    faults = [
        (changed(STATE, extended), "adds 'params.more'"),
        (changed(STATISTICS, edited(TABLE, lambda a: a * np.inf)), "not finite"),
    ]
    networks = ["linear", {"name": "mlp", "options": {"hidden": [6]}}]
    run_with(tmp_path, "fedmd", {"batch_size": 8}, faults, by_client=networks)
