import json

import pytest

from fedbb.recipes.reader import read_recipe
from helpers.commands import fedbb

pytest.importorskip("optuna")

RECIPE = """
[data]
name = "digits"
train_images = 120
validation = 0.3
partition = { kind = "label-skew", clients = 3, concentration = 1.0 }
[model]
name = "linear"
[method]
name = "fedprox"
[rounds]
number = 1
[evaluation]
bootstrap = 0
"""
GRID = """
title = "Two methods"
seeds = [0]
rows = "method"
metrics = ["accuracy"]
[recipe]
data.name = "digits"
data.train_images = 120
data.validation = 0.3
data.partition = { kind = "even", clients = 3 }
model = { name = "linear" }
rounds = { number = 1 }
evaluation = { bootstrap = 0 }
[[axis]]
name = "method"
value = [
  { label = "FedAvg", set = { "method.name" = "fedavg" } },
  { label = "FedLC", set = { "method.name" = "fedlc" } },
]
"""
WORDS = ("--search", "local.lr=0.01,0.1", "--workers", "1")


def test_a_recipe_is_tuned_and_the_screen_tells_what_was_tried(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text(RECIPE)
    done = fedbb("tune", "r.toml", *WORDS, monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    assert done.err.count("search 1: local.lr = ") == 2
    (folder,) = (tmp_path / "tuning" / "r").iterdir()
    assert str(folder.relative_to(tmp_path) / "recipe.toml") in done.out.replace("\n", "")
    assert read_recipe(folder / "recipe.toml").local.lr in (0.01, 0.1)
    found = json.loads(fedbb("tune", "r.toml", *WORDS, "--json", monkeypatch=monkeypatch).out)
    assert list(found) == [folder.name]
    assert len(found[folder.name]["trials"]) == 2


def test_every_cell_of_a_grid_is_tuned_by_itself(tmp_path, monkeypatch):
    (tmp_path / "g.toml").write_text(GRID)
    words = ("tune", tmp_path / "g.toml", "--out", tmp_path / "t", *WORDS, "-q")
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert (done.code, done.out, done.err) == (0, "", "")
    recipes = [read_recipe(path) for path in (tmp_path / "t").glob("*/recipe.toml")]
    assert {recipe.method.name for recipe in recipes} == {"fedavg", "fedlc"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing.toml",), "recipe missing.toml cannot be read"),
        (("r.toml", "--search", "local.lr=fast"), "must be KEY=LOW:HIGH"),
        (("r.toml", "--set", "data.validation=0.0"), "tuning needs validation data"),
    ],
)
def test_bad_input_ends_with_one_message_and_code_2(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text(RECIPE)
    done = fedbb("tune", *words, monkeypatch=monkeypatch)
    assert done.code == 2
    assert message in done.err or "LOW:HIGH takes two numbers" in done.err
    assert not (tmp_path / "tuning").exists()
