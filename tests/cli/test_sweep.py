"""`fedbb sweep`: what it says, what it leaves on disk, and that no kill changes the table."""

import json
import random
import signal
import time

import pytest

from fedbb.recipes.grid import read_grid
from fedbb.runs.folder import RunFolder
from fedbb.runs.sweep import statuses
from helpers.commands import fedbb, started
from helpers.small_grid import write, write_grid


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return write_grid(tmp_path)


def sums(out):
    paths = sorted((out / "runs").glob("*/summary.json"))
    return {path.parent.name: RunFolder(path.parent).read_json("summary.json") for path in paths}


def tables(out):
    return {name: (out / name).read_bytes() for name in ("table.md", "table.csv", "table.json")}


def test_a_dry_run_lists_the_cells_and_their_cost_and_writes_nothing(grid, monkeypatch):
    done = fedbb("sweep", grid, "--dry-run", "--workers", 2, monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    assert "FedBB" in done.out
    assert done.out.count("waiting") == 8
    assert "8 cells, about " in done.out
    assert " on 2 workers" in done.out
    assert not (grid.parent / "sweeps").exists()


def test_only_seeds_set_and_overlays_choose_and_change_cells(grid, monkeypatch):
    overlay = write(grid.with_name("one.toml"), 'note = "shorter"\nrecipe = { rounds.number = 1 }')
    words = ("--overlay", overlay, "--seeds", "3,4", "--only", "FedBB & seed 4", "--only", "seed 3")
    done = fedbb(
        "sweep",
        grid,
        *words,
        "--set",
        "local.epochs=2",
        "--dry-run",
        "--json",
        monkeypatch=monkeypatch,
    )
    plan = json.loads(done.out)
    assert [(cell["at"]["method"], cell["seed"]) for cell in plan["cells"]] == [
        ("FedAvg", 3),
        ("FedAvg", 3),
        ("FedBB", 3),
        ("FedBB", 4),
        ("FedBB", 3),
        ("FedBB", 4),
    ]
    assert {cell["of"] for cell in plan["cells"]} == {1}
    assert all(cell["seconds_left"] > 0 for cell in plan["cells"])
    shown = fedbb("sweep", grid, *words, "--dry-run", monkeypatch=monkeypatch)
    assert "note: shorter" in shown.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.toml"], "nowhere.toml cannot be read"),
        (["GRID", "--seeds", "0,x"], "--seeds '0,x' must be whole numbers, as in 0,1,2"),
        (["GRID", "--seeds", "1,1"], "seed '1' is given more than once"),
        (["GRID", "--seeds", "-1"], "seed = -1 is refused"),
        (["GRID", "--only", "FedBC"], "no cell matches 'FedBC'; did you mean FedBB?"),
        (["GRID", "--overlay", "no.toml"], "no.toml cannot be read"),
        (["GRID", "--set", "local.rl=1"], "local.rl is unknown; did you mean lr?"),
        (["GRID", "--out", "small.npz"], "cannot be written"),
        (["mine.toml"], "mine.toml is a recipe, not a grid: `fedbb run mine.toml` trains it"),
        (["GRID", "--overlay", "mine.toml"], "mine.toml is a recipe, not a grid"),
        (["mine.json"], "a grid is a TOML file, only a recipe may be JSON"),
    ],
)
def test_bad_input_ends_with_one_message_and_exit_code_two(grid, monkeypatch, words, message):
    write(grid.with_name("mine.toml"), 'data = { name = "digits" }\nmethod = { name = "fedbb" }')
    write(grid.with_name("mine.json"), '{"data": {"name": "digits"}, "method": {"name": "fedbb"}}')
    words = [grid if word == "GRID" else word for word in words]
    done = fedbb("sweep", *words, monkeypatch=monkeypatch)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_cell_that_fails_is_told_of_with_exit_code_one_and_the_others_have_their_table(
    grid, monkeypatch
):
    wild = write(
        grid.with_name("wild.toml"),
        'axis = [{ name = "rate", value = [{ label = "η = 0.1", set = { "local.lr" = 1e30 } }] }]',
    )
    words = ("sweep", grid, "--overlay", wild, "--seeds", 0, "--out", "out", "--workers", 1)
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert done.code == 1
    assert "finished FedBB · η = 0.05 · seed 0  left " in done.out
    assert "4 cells, 2 finished, 2 failed" in done.out
    assert "failed FedAvg · η = 0.1 · seed 0: round 1, client 0, method FedAvg" in done.err
    assert "failed" in (grid.parent / "out" / "table.md").read_text("utf-8")
    times = {path: path.stat().st_mtime_ns for path in grid.parent.rglob("*.safetensors")}
    again = fedbb(*words, "--only", "η = 0.05", "--json", monkeypatch=monkeypatch)
    assert again.code == 0
    events = [json.loads(line) for line in again.out.splitlines()]
    assert [event["event"] for event in events] == ["estimate", "end"]
    assert {cell["state"] for cell in events[1]["cells"]} == {"finished"}
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_the_same_command_goes_on(grid, monkeypatch):
    words = ("sweep", grid, "--set", "rounds.number=100000", "--out", "out", "--json")
    with started(*words, cwd=grid.parent) as process:
        while '"round": 2' not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    message = "stopped; every finished round is kept in out/runs, and the same command continues"
    assert err.strip() == message
    assert any(
        len(RunFolder(path).records()) >= 2 for path in (grid.parent / "out/runs").glob("*_*")
    )


def kill_and_go_on(grid, kills, rounds, monkeypatch):
    """Compare a sweep that is killed at random moments with one that is not."""
    length = f"rounds.number={rounds}"
    chance = random.Random(0)
    here = grid.parent
    words = ("sweep", grid, "--only", "seed 0", "--workers", "2", "--set", length)
    done = fedbb(*words, "--out", "whole", "--quiet", monkeypatch=monkeypatch)
    assert (done.code, done.out, done.err) == (0, "", "")
    read = read_grid(grid, settings=[length])
    for _ in range(kills):
        before = progress(read, here / "killed")
        with started(*words, "--out", "killed", cwd=here) as process:
            while progress(read, here / "killed") <= before and process.poll() is None:
                time.sleep(0.02)
            time.sleep(chance.uniform(0, 0.3))
            process.kill()
    assert progress(read, here / "killed") > 0
    assert fedbb(*words, "--out", "killed", "--quiet", monkeypatch=monkeypatch).code == 0
    assert sums(here / "killed") == sums(here / "whole")
    assert len(sums(here / "killed")) == 4
    assert tables(here / "killed") == tables(here / "whole")


def progress(grid, out):
    return sum(status.rounds for status in statuses(grid, out / "runs").values())


@pytest.mark.slow
def test_a_sweep_that_is_killed_and_started_again_ends_with_the_same_table_to_the_bit(
    grid, monkeypatch
):
    kill_and_go_on(grid, 1, 3, monkeypatch)


@pytest.mark.slow
def test_a_sweep_that_is_killed_many_times_ends_with_the_same_table_to_the_bit(grid, monkeypatch):
    kill_and_go_on(grid, 5, 40, monkeypatch)
