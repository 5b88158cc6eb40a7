"""Runs that keep models, tables or residuals are killed by SIGKILL and resumed to the bit."""

import json
import os
import subprocess
import sys

import pytest

from helpers.slot_kills import EVERY, ROUNDS


def check(tmp_path, cases):
    command = [sys.executable, "-m", "helpers.slot_kills", str(tmp_path), *cases]
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
