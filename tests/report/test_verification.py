"""A kept result is run again: the same bits, a score of its setting, or another one."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedbb.errors import RecipeError, RunError
from fedbb.report.verification import (
    Outcome,
    StoredResult,
    Verification,
    stored_cell,
    stored_run,
    verify,
)
from fedbb.runs.runner import run
from helpers.small_run import finish, small_recipe, write_npz

GRID = """
title = "Small"
seeds = [0, 1]
rows = "method"
metrics = ["accuracy"]
[recipe]
engine = "inline"
data.name = "npz"
data.path = "{path}"
data.partition = {{ kind = "even", clients = 3 }}
local.batch_size = 8
rounds.number = 1
evaluation.bootstrap = 0
[[axis]]
name = "method"
value = [
  {{ label = "FedAvg", set = {{ "method.name" = "fedavg" }} }},
  {{ label = "FedBB", set = {{ "method.name" = "fedbb" }} }},
]
"""


@pytest.fixture
def stored(tmp_path):
    """A grid whose FedAvg cells of two seeds are stored."""
    from studies.collect import collect

    grid = tmp_path / "small.toml"
    grid.write_text(GRID.format(path=write_npz(tmp_path / "small.npz")))
    from fedbb.recipes.grid import read_grid

    for cell in read_grid(grid).cells:
        if cell.at["method"] == "FedAvg":
            finish(cell.recipe, tmp_path / "runs" / cell.name)
    collect(grid, tmp_path / "runs", tmp_path / "results")
    return grid, tmp_path / "results" / "cells.csv"


def test_a_finished_run_gives_the_same_bits_again(tmp_path):
    finish(small_recipe(tmp_path, rounds={"number": 1}), tmp_path / "run")
    kept = stored_run(tmp_path / "run")
    found = verify(kept, workers=0)
    assert found.outcome is Outcome.SAME_BITS
    assert found.score == kept.score
    other = verify(replace(kept, sha256="0" * 64), workers=0)
    assert other.outcome is Outcome.UNKNOWN


def test_a_stored_cell_gives_the_same_bits_again_and_knows_its_other_seeds(stored):
    grid, cells = stored
    kept = stored_cell(grid, "seed0", cells)
    assert len(kept.others) == 1
    assert verify(kept, workers=0).outcome is Outcome.SAME_BITS


def test_other_bits_are_judged_by_the_prediction_interval_of_the_seeds(tmp_path):
    recipe = small_recipe(tmp_path)
    kept = StoredResult("a", recipe, "accuracy", 0.60, "x", (0.62, 0.64))
    scores = np.array([0.60, 0.62, 0.64])
    reach = stats.t.ppf(0.975, 2) * scores.std(ddof=1) * np.sqrt(1 + 1 / 3)
    assert kept.interval.low == pytest.approx(0.62 - reach)
    assert kept.interval.high == pytest.approx(0.62 + reach)
    assert Verification(kept, 0.62 + reach - 1e-9, "y").outcome is Outcome.WITHIN
    assert Verification(kept, 0.62 + reach + 1e-9, "y").outcome is Outcome.DIFFERS
    assert Verification(kept, 0.62 + reach + 1e-9, "x").outcome is Outcome.SAME_BITS


def test_what_is_not_kept_is_refused(tmp_path, stored):
    grid, cells = stored
    with pytest.raises(RecipeError, match="2 stored cells contain 'fedavg'"):
        stored_cell(grid, "fedavg", cells)
    with pytest.raises(RecipeError, match="no stored cell contains 'fedbb'"):
        stored_cell(grid, "fedbb", cells)
    with pytest.raises(RunError, match="cannot be read"):
        stored_cell(grid, "fedavg", tmp_path / "missing.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RunError, match="holds no stored cells"):
        stored_cell(grid, "fedavg", tmp_path / "other.csv")
    grid.write_text(grid.read_text().replace("rounds.number = 1", "rounds.number = 2"))
    with pytest.raises(RecipeError, match="has changed since the cell was stored"):
        stored_cell(grid, "seed0", cells)
    records = run(small_recipe(tmp_path / "d"), tmp_path / "unfinished", workers=0)
    next(records)
    records.close()
    with pytest.raises(RunError, match="unfinished"):
        stored_run(tmp_path / "unfinished")


def test_rows_are_stored_with_the_columns_that_are_read(stored):
    with stored[1].open(encoding="utf-8") as lines:
        assert {"cell", "seed", "best by", "sha256"} <= set(next(csv.DictReader(lines)))
