import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedbb.runs.folder import RunFolder
from helpers.cover import few
from helpers.small_run import small_recipe

DRIVER = Path(__file__).parents[1] / "helpers" / "run_driver.py"


def drive(tmp_path, recipe, *words):
    path = tmp_path / "recipe.json"
    path.write_text(recipe.model_dump_json())
    command = [sys.executable, str(DRIVER), words[0], str(path), str(tmp_path), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def check(tally, folder, sums, rounds):
    """Check that all these runs ended with one model, and that no folder lacks a round."""
    tally.results(sums[1:], sums[0])
    for path in sorted(folder.glob("*/rounds.jsonl")):
        tally.rounds([record["round"] for record in RunFolder(path.parent).records()], rounds)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_at_fifty_random_moments_ends_with_the_same_model(tmp_path, tally):
    sums = drive(tmp_path, small_recipe(tmp_path, rounds={"number": 12}), "kill", "50")
    check(tally, tmp_path, sums, 12)


@pytest.mark.slow
def test_clients_that_remember_are_killed_and_resumed_with_their_memory(tmp_path, tally):
    rounds = {"number": 10, "participation": 0.7}
    recipe = small_recipe(tmp_path, method={"name": "moon+fedbb"}, rounds=rounds)
    sums = drive(tmp_path, recipe, "kill", "8")
    check(tally, tmp_path, sums, 10)


@pytest.mark.parametrize("method", ["fedbb", pytest.param("moon", marks=pytest.mark.slow)])
def test_a_crash_before_any_single_write_ends_with_the_same_model(tmp_path, tally, method):
    rounds = {"number": 2, "participation": 0.4}
    recipe = small_recipe(tmp_path, method={"name": method}, rounds=rounds)
    sums = drive(tmp_path, recipe, "points")
    assert len(sums) > 20
    check(tally, tmp_path, sums, 2)


READ_ONLY = """
import os, sys
from pathlib import Path
from fedbb.errors import RunError
from fedbb.runs.folder import check_foreign, hold
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write anywhere
for begin in (check_foreign, lambda path: hold(path).__enter__()):
    try:
        begin(Path(sys.argv[1]))
    except RunError as error:
        print(error)
"""


@pytest.mark.parametrize("mode", few([0o555, 0o000], 1), ids=["read only", "not even searched"])
def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path, mode):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(mode)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)
    command = [sys.executable, "-c", READ_ONLY, str(locked / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    *before, last = done.stdout.splitlines()
    assert "run cannot be written: Permission denied" in last
    assert all("run cannot be read: Permission denied" in line for line in before)
    assert before or mode != 0
    advice = "; give your user the rights? (to read and )?to enter "
    if mode == 0:
        assert all(re.search(f"{advice}{locked}$", line) for line in (*before, last))
    else:
        assert not re.search(advice, last)
