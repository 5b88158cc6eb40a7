"""Files, threads and memory of a process over many rounds, and of a merge over many clients."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedbb.runs.folder import RunFolder
from helpers.small_run import small_values, write_npz

HELPERS = Path(__file__).parents[1] / "helpers"
MEGABYTE = 2**20

linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")


def start(script, *words, timeout=240):
    command = [sys.executable, str(HELPERS / script), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@linux
@pytest.mark.parametrize(
    ("method", "number"),
    [
        ("moon", 12),  # clients that keep states open most files
        pytest.param("fedbb", 1000, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
        pytest.param("moon", 500, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_files_threads_and_memory_do_not_grow_with_the_rounds(tmp_path, tally, method, number):
    values = small_values(
        write_npz(tmp_path / "small.npz", samples=16),
        method={"name": method},
        rounds={"number": number},
    )
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(values))
    rounds, files, threads, memory = zip(
        *start("resource_driver.py", path, tmp_path / "run", timeout=800), strict=True
    )
    tally.rounds(rounds, number)
    tally.rounds([record["round"] for record in RunFolder(tmp_path / "run").records()], number)
    settled = number // 4
    assert len(set(files[1:])) == 1, files
    assert max(threads[settled:]) <= max(threads[:settled])
    # A model has 100 kB here: one kept in every round would be 75 MB in a thousand rounds.
    assert memory[-1] - memory[settled] < 4 * MEGABYTE


@pytest.mark.slow
@linux
def test_a_merge_over_many_clients_holds_few_models_at_a_time():
    (figures,) = start("merge_driver.py", 1000, 600_000)
    assert figures["clients"] == 1000
    assert figures["error"] < 1e-6
    assert figures["grown"] < 4 * figures["model"], figures
