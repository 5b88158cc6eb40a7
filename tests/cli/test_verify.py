import json
import tomllib
from pathlib import Path

from studies.stored import read_stored

from fedbb.recipes.check import check_recipe
from fedbb.recipes.grid import read_grid
from fedbb.recipes.reader import make_recipe
from helpers.commands import fedbb
from helpers.small_run import finish, small_recipe

ROOT = Path(__file__).parents[2]


def test_a_run_is_verified_and_a_false_digest_is_told(tmp_path, monkeypatch):
    finish(small_recipe(tmp_path, rounds={"number": 1}), tmp_path / "run")
    done = fedbb("verify", tmp_path / "run", monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    assert done.out.startswith("same bits: balanced_accuracy ")
    summary = tmp_path / "run" / "summary.json"
    content = json.loads(summary.read_text()) | {"sha256": "0" * 64}
    summary.write_text(json.dumps(content))
    found = json.loads(fedbb("verify", tmp_path / "run", "--json", monkeypatch=monkeypatch).out)
    assert found["outcome"] == "no interval known"
    assert found["score"] == found["kept_score"]


def test_the_recipe_of_a_stored_cell_is_one_that_runs(monkeypatch):
    """Each cell of the leaderboard is named by the end of its name alone."""
    monkeypatch.chdir(ROOT)
    (row, *_) = read_stored("fashion").cells
    end = row["cell"].rpartition("_")[2]
    words = ("verify", "studies/fashion.toml", end, "--recipe")
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    recipe = make_recipe(tomllib.loads(done.out))
    cells = read_grid(ROOT / "studies" / "fashion.toml").cells
    (asked,) = [cell for cell in cells if cell.name == row["cell"]]
    assert recipe == asked.recipe
    check_recipe(recipe)


def test_a_cell_outside_of_the_interval_exits_with_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.toml").write_text("""
title = "One"
seeds = [0]
rows = "method"
metrics = ["accuracy"]
[recipe]
data.name = "digits"
data.train_images = 60
data.partition = { kind = "even", clients = 2 }
model.name = "linear"
rounds.number = 1
evaluation.bootstrap = 0
evaluation.metric = "accuracy"
[[axis]]
name = "method"
value = [{ label = "FedAvg", set = { "method.name" = "fedavg" } }]
""")
    from fedbb.recipes.grid import read_grid

    (cell,) = read_grid(tmp_path / "g.toml").cells
    head = "cell,method,seed,test accuracy,best by,sha256\n"
    rows = "".join(
        f"{cell.name.replace('seed0', f'seed{seed}')},FedAvg,{seed},{score},test accuracy,0\n"
        for seed, score in enumerate((0.99, 0.991, 0.989))
    )
    (tmp_path / "cells.csv").write_text(head + rows)
    words = ("verify", "g.toml", cell.name, "--results", "cells.csv", "--workers", "1")
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert done.code == 1, done.err
    assert "differs" in done.out


def test_bad_input_ends_with_code_2(tmp_path, monkeypatch):
    (tmp_path / "g.toml").write_text("seeds = 0")
    for words, message in (
        ((tmp_path / "nowhere",), "does not exist; give the folder of a finished run"),
        ((tmp_path,), "is not a run folder"),
        ((tmp_path, "cell"), "a run folder has no cells"),
        ((tmp_path / "g.toml",), "name a cell"),
        ((tmp_path / "g.toml", "x"), "g/cells.csv does not exist; call this in the folder of"),
    ):
        done = fedbb("verify", *words, monkeypatch=monkeypatch)
        assert done.code == 2
        assert message in done.err
