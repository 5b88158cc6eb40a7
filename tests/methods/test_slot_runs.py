"""Runs that keep models, tables or residuals: killed and resumed, or in workers, to the bit."""

import json
import os
import subprocess
import sys

import pytest

from helpers.slot_runs import EVERY, ROUNDS, SERVER, kept, recipe_of
from helpers.small_run import finish, without_seconds


def check(tmp_path, cases):
    command = [sys.executable, "-m", "helpers.slot_runs", str(tmp_path), *cases]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {case: same for case, (same, _) in found.items()} == dict.fromkeys(cases, True)
    # It was neither killed before anything was kept, nor at its end.
    assert all(0 < saved < ROUNDS for _, saved in found.values())


@pytest.mark.slow
def test_a_killed_run_of_clients_with_different_networks_goes_on_to_the_bit(tmp_path):
    check(tmp_path, ["rhfl in turn"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_runs_of_every_slot_go_on_to_the_bit(tmp_path):
    check(tmp_path, list(EVERY))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_runs_with_a_server_state_or_another_classifier_go_on_to_the_bit(tmp_path):
    check(tmp_path, list(SERVER))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", EVERY)
def test_any_number_of_workers_gives_the_bits_of_the_inline_engine(tmp_path, case):
    summary, records = finish(recipe_of(tmp_path, case), tmp_path / "inline")
    theirs = kept(tmp_path / "inline")
    for workers in (1, 2, 3):
        path = tmp_path / f"pool-{workers}"
        found, pooled = finish(recipe_of(tmp_path, case, engine="pool"), path, workers=workers)
        assert found == summary
        assert without_seconds(pooled) == without_seconds(records)
        ours = kept(path)
        assert ours.keys() == theirs.keys()
        assert all(ours[name].equal(theirs[name]) for name in theirs)
