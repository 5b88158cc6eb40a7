"""Runs with worker processes: the same bits as without, and nothing left behind."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedbb.errors import RunError
from fedbb.recipes.reader import make_recipe
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from fedbb.runs.runtime import choose_workers
from helpers.commands import fedbb, started
from helpers.small_run import finish, small_recipe, small_values, without_seconds, write_npz
from helpers.teachers import teacher_options


def family(process):
    """Return the ids of all processes that descend from one."""
    found, new = set(), {process}
    while new:
        found |= new
        new = {child for child in map(int, processes()) if parent(child) in new} - found
    return found - {process}


def processes():
    return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def parent(process):
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def wait_until(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("method", ["fedbb", "moon+fedbb"])
def test_a_run_by_workers_writes_what_a_run_without_them_writes(tmp_path, method):
    results = {}
    for engine in ("inline", "pool"):
        recipe = small_recipe(
            tmp_path,
            engine=engine,
            method={"name": method},
            rounds={"number": 4, "participation": 0.7},
        )
        summary, records = finish(recipe, tmp_path / engine, workers=None)
        results[engine] = (summary, without_seconds(records))
        assert records[0]["work"]["workers"] == (
            0 if engine == "inline" else choose_workers(recipe, None)
        )
    assert results["inline"] == results["pool"]


def test_a_run_begun_with_workers_goes_on_without_and_the_other_way(tmp_path):
    method = {"name": "moon"}
    whole, _ = finish(small_recipe(tmp_path, method=method), tmp_path / "whole")
    for order in (("pool", "inline"), ("inline", "pool")):
        path = tmp_path / "-".join(order)
        first, second = (small_recipe(tmp_path, method=method, engine=engine) for engine in order)
        rounds = run(first, path)
        next(rounds), next(rounds)
        rounds.close()
        summary, records = finish(second, path, resume=True)
        assert len(records) == 2
        assert summary == whole


def test_the_engine_follows_cores_and_clients(tmp_path, monkeypatch):
    monkeypatch.setattr("fedbb.simulation.pool.pool.usable_cores", lambda: 4)
    auto = small_recipe(tmp_path, engine="auto")
    assert choose_workers(auto, None) == 4
    assert choose_workers(auto, 3) == 3
    assert choose_workers(auto, 1) == 0
    assert choose_workers(small_recipe(tmp_path, engine="pool"), 1) == 1
    assert choose_workers(small_recipe(tmp_path, engine="inline"), None) == 0
    monkeypatch.setattr("fedbb.simulation.pool.pool.usable_cores", lambda: 1)
    assert choose_workers(auto, None) == 0
    with pytest.raises(RunError, match='engine = "inline" uses no worker processes, and 2 are'):
        choose_workers(small_recipe(tmp_path, engine="inline"), 2)


def test_a_single_client_is_trained_without_workers(tmp_path):
    values = small_values(tmp_path / "small.npz", engine="auto", rounds={"number": 1})
    small_recipe(tmp_path)
    values["data"]["partition"]["clients"] = 1
    _, (record,) = finish(make_recipe(values), tmp_path / "run", workers=2)
    assert record["work"]["workers"] == 0


def kill_in_turns(recipe, workers):
    """Start and resume a run with these numbers of workers; kill it each time after a round.

    Returns:
        The ids of all its processes, none of which is left.
    """
    chance, descendants = random.Random(1), set()
    for number in workers:
        words = ("run", recipe, "--out", "run", "--workers", str(number), "--json", "--resume")
        with started(*words, cwd=recipe.parent) as process:
            process.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.3))
            descendants |= family(process.pid)
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
    wait_until(lambda: not descendants & set(map(int, processes())))
    return descendants


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_killed_with_its_workers_at_work_resumes_to_the_bit_and_leaves_nobody(
    tmp_path, tally
):
    recipe = small_recipe(tmp_path, engine="pool", method={"name": "moon"}, rounds={"number": 30})
    path = tmp_path / "recipe.json"
    path.write_text(recipe.model_dump_json())
    descendants = kill_in_turns(path, (2,))
    assert len(descendants) >= 2
    summary, _ = finish(recipe, tmp_path / "run", resume=True)
    unhurt, _ = finish(recipe.model_copy(update={"engine": "inline"}), tmp_path / "unhurt")
    tally.run(summary, unhurt, tmp_path / "run")
    assert summary == unhurt


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", ["clip2fl", "clip2fl+fedlc"])
def test_a_killed_run_with_a_teacher_resumes_to_the_bit_with_any_number_of_workers(
    tmp_path, name, tally
):
    options = teacher_options(name, write_npz(tmp_path / "small.npz"))
    method = {"name": name, "options": options}
    recipe = small_recipe(tmp_path, engine="pool", method=method, rounds={"number": 40})
    path = tmp_path / "recipe.json"
    path.write_text(recipe.model_dump_json())
    kill_in_turns(path, (1, 3, 2))
    summary, _ = finish(recipe, tmp_path / "run", resume=True, workers=1)
    unhurt, _ = finish(recipe.model_copy(update={"engine": "inline"}), tmp_path / "unhurt")
    tally.run(summary, unhurt, tmp_path / "run")
    assert summary == unhurt


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_ends_the_workers_and_keeps_the_rounds(tmp_path):
    recipe = small_recipe(tmp_path, engine="pool", rounds={"number": 5000})
    path = tmp_path / "recipe.json"
    path.write_text(recipe.model_dump_json())
    with started("run", path, "--out", "run", "--json", cwd=tmp_path) as process:
        first = json.loads(process.stdout.readline())
        descendants = family(process.pid)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert first["round"] == 1
    assert process.returncode == 130
    assert "stopped after round" in told
    assert "Traceback" not in told
    wait_until(lambda: not descendants & set(map(int, processes())))
    assert len(RunFolder(tmp_path / "run").records()) >= 1


SCRIPT = """
import sys
from pathlib import Path
from fedbb.recipes.reader import read_recipe
from fedbb.runs.runner import run
print("once")
for record in run(read_recipe(sys.argv[1]), Path("run"), workers=2):
    print(record["work"]["workers"])
"""


@pytest.mark.slow
def test_a_plain_script_needs_no_guard_around_its_lines(tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text(small_recipe(tmp_path, engine="pool", rounds={"number": 2}).model_dump_json())
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py", str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["once", "2", "2"]


def test_workers_are_announced(tmp_path, monkeypatch):
    path = tmp_path / "recipe.json"
    path.write_text(small_recipe(tmp_path, engine="pool", rounds={"number": 1}).model_dump_json())
    words = ("run", path, "--workers", 2, "--out", tmp_path / "run")
    assert "2 worker processes" in fedbb(*words, monkeypatch=monkeypatch).out
    assert (tmp_path / "run" / "summary.json").exists()
