"""Text from outside on the terminal: no markup is obeyed, and no control character is passed on."""

import json

import numpy as np
import pytest

from fedbb.recipes.reader import make_recipe
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.commands import fedbb
from helpers.small_run import small_values, write_npz

CLASSES = ["[/x]", "\x1b[31mred\x9b2J", "[bold]:smile:\x07"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("hostile")
    path = write_npz(place / "small.npz")
    arrays = dict(np.load(path))
    np.savez(path, **arrays, classes=np.array(CLASSES))
    for seed in (0, 1):
        values = small_values(path, seed=seed, rounds={"number": 1})
        list(run(make_recipe(values), place / f"seed{seed}"))
    federation = RunFolder(place / "seed0").read_json("federation.json")
    federation["notes"] = ["[/note]\x1b[2J"]
    federation["data"] = "[/data]\x1b[2J"
    RunFolder(place / "seed0").write_json("federation.json", federation)
    return place


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["show", "seed0"], ["[/x]", "[bold]:smile:", "note: [/note]?[2J", "[/data]?[2J"]),
        (["show", "seed0", "--json"], ["[/x]", r"\u001b[31mred\u009b2J"]),
        (["inspect", "small.npz"], ["[/x]"]),
        (["inspect", "small.npz", "--json"], [r"\u009b2J"]),
        (["inspect", "small.npz", "--suggest"], []),
        (["inspect", "seed1"], ["[/x]"]),
        (["compare", "seed0", "seed1"], ["[/x]"]),
        (["audit", "seed0"], []),
        (["predict", "seed0", "small.npz", "--out", "said.csv"], []),
        (["predict", "seed0", "small.npz"], ["[/x]"]),
        (["card", "seed1"], []),
        (["report", "seed0", "seed1"], []),
        (["personalize", "seed1"], []),
        (["methods"], []),
        (["run", "--resume", "seed1"], []),
        (["run", "[/x]\x1b[2J.toml"], ["[/x]?[2J.toml"]),
    ],
)
def test_names_from_outside_are_shown_as_they_are(folder, monkeypatch, words, shown):
    monkeypatch.chdir(folder)
    answer = fedbb(*words, monkeypatch=monkeypatch)
    text = answer.out + answer.err
    assert answer.code == (2 if words[-1].endswith(".toml") else 0), text
    assert not {sign for sign in text if not sign.isprintable()} - {"\n", "\t"}
    for part in shown:
        assert part in text


def test_json_stays_what_it_was(folder, monkeypatch):
    monkeypatch.chdir(folder)
    answer = fedbb("show", "seed0", "--json", monkeypatch=monkeypatch)
    assert json.loads(answer.out)["federation"]["classes"] == CLASSES
