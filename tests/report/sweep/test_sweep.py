"""`fedbb.sweep` runs a grid from Python as the command does, and continues where it was."""

import csv
import tomllib
from pathlib import Path

import pytest

import fedbb
from fedbb.errors import RecipeError
from fedbb.runs.folder import RunFolder
from fedbb.runs.scheduler import EventKind
from helpers.small_grid import write_grid


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_grid(tmp_path)


def rounds_of(events):
    return [(title, event.round) for title, event in events if event.kind is EventKind.ROUND]


def test_a_second_call_runs_what_is_missing_and_returns_the_table_of_all(grid):
    events = []

    def note(title, event):
        events.append((title, event))

    first = fedbb.sweep(grid, only=["FedAvg & seed 0"], workers=1, progress=note)
    assert first.folder == Path("sweeps", "small")
    assert len(rounds_of(events)) == 2 * 3
    before = sorted((first.folder / "runs").glob("*/summary.json"))
    bits = [RunFolder(path.parent).read_json("summary.json")["sha256"] for path in before]
    events.clear()
    swept = fedbb.sweep(grid, seeds=[0], workers=1, progress=note)
    assert {title for title, _ in rounds_of(events)} == {
        cell.title for cell in swept.grid.cells if "FedBB" in cell.title
    }
    after = [RunFolder(path.parent).read_json("summary.json")["sha256"] for path in before]
    assert after == bits
    assert swept.failed == {}
    assert len(swept.frame()) == 4


def test_rows_are_those_of_the_table_on_disk_and_the_text_is_its_markdown(grid):
    swept = fedbb.sweep(str(grid), "out", seeds=[0], workers=2, settings=["rounds.number=1"])
    written = list(csv.DictReader((swept.folder / "table.csv").read_text("utf-8").splitlines()))
    assert [list(row) for row in swept.rows] == [list(row) for row in written]
    assert {row["axis: method"] for row in swept.rows} == {"FedAvg", "FedBB"}
    assert (swept.folder / "table.md").read_text("utf-8").strip() == str(swept).strip()
    drawn = swept.draw()
    assert drawn
    assert all(path.parent == swept.folder / "figures" and path.exists() for path in drawn)


def test_what_a_file_holds_gives_the_cells_of_the_file(grid):
    table = tomllib.loads(grid.read_text("utf-8"))
    shorter = {"recipe": {"rounds": {"number": 1}}}
    from_table = fedbb.sweep(table, "a", overlays=[shorter], only=["FedBB"], seeds=[3], workers=1)
    from_file = fedbb.sweep(
        grid, "b", settings=["rounds.number=1"], only=["FedBB"], seeds=[3], workers=1
    )
    assert [cell.name for cell in from_table.grid.cells] == [
        cell.name for cell in from_file.grid.cells
    ]
    assert list(from_table.frame()["sha256"]) == list(from_file.frame()["sha256"])


def test_a_cell_that_fails_is_named_and_does_not_stop_the_others(grid):
    broken = grid.read_text("utf-8").replace(
        'set = { "method.name" = "fedavg" }',
        'set = { "method.name" = "fedavg", "data.path" = "gone.npz" }',
    )
    grid.write_text(broken, "utf-8")
    swept = fedbb.sweep(grid, seeds=[0], workers=1, settings=["rounds.number=1"])
    assert len(swept.failed) == 2
    assert all("gone.npz" in why for why in swept.failed.values())
    assert len(swept.frame()) == 2


def test_a_table_needs_a_folder_and_wrong_names_are_refused(grid):
    table = tomllib.loads(grid.read_text("utf-8"))
    with pytest.raises(RecipeError, match="give the folder"):
        fedbb.sweep(table)
    with pytest.raises(RecipeError, match="no cell matches 'FedBC'"):
        fedbb.sweep(grid, only=["FedBC"])
    with pytest.raises(RecipeError, match="rowss"):
        fedbb.sweep({**table, "rowss": "method"}, "out")
    assert not (grid.parent / "sweeps").exists()
    assert not (grid.parent / "out").exists()
