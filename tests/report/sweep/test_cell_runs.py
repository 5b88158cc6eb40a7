"""The runs of a grid's cells: what can be used, and a message for everything else."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.recipes.grid.grid import read_grid
from fedbb.report.results import read_run
from fedbb.report.sweep.cell_runs import count_images, read_cells
from fedbb.report.sweep.table_files import read_table, write_tables
from fedbb.runs.folder import RunFolder
from fedbb.runs.sweep import State
from helpers.grid_results import run_cells, small_grid, write_grid
from helpers.hidden_runs import hide


def test_cost_counts_the_images_of_the_clients_that_took_part(tmp_path):
    settings = "[recipe.local]\nepochs = 3\nbatch_size = 16\ndrop_last = true\n[recipe.data]"
    path = write_grid(tmp_path / "grid.toml", {"FedAvg": "fedavg"}, ["x"], seeds="[0]")
    path.write_text(path.read_text().replace("[recipe.data]", settings, 1))
    grid = read_grid(path)
    (cell,) = grid.cells
    folder = run_cells(grid, tmp_path / "runs") / cell.name
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        line["clients"] = line["clients"][: 1 + number % 2]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    clients = json.loads((folder / "federation.json").read_text())["clients"]
    images = 0
    for line in lines:
        for trained in line["clients"]:
            samples = clients[trained["client"]]["samples"]
            images += 3 * (samples if samples < 16 else samples // 16 * 16)
    (entry,) = read_table(grid, [], tmp_path / "runs").entries
    assert entry.images.mean == images
    assert entry.seconds.mean == pytest.approx(6 * 0.75)


@pytest.mark.parametrize("name", ["recipe.json", "federation.json", "rounds.jsonl", "summary.json"])
def test_a_corrupt_folder_is_a_message_and_leaves_the_others(tmp_path, name):
    grid = small_grid(tmp_path, seeds="[0]")
    runs = run_cells(grid, tmp_path / "runs")
    (runs / grid.cells[0].name / name).write_bytes(b"\xff{\n")
    table = read_table(grid, [], runs)
    spoilt, *others = table.entries
    assert spoilt.status.startswith("failed: run folder")
    assert str(tmp_path) not in spoilt.status
    assert name in spoilt.status
    assert {entry.status for entry in others} == {"1 seed"}


def places(value, trail=()):
    """Yield the way to every value inside parsed JSON."""
    yield trail
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in inner:
            yield from places(part, (*trail, key))


def changed(value, trail, new):
    """Return parsed JSON with the value at the end of a trail replaced."""
    if not trail:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[trail[0]] = changed(value[trail[0]], trail[1:], new)
    return copy


ODD = (None, True, -1, 1e308, math.inf, -math.inf, math.nan, "x", "\ud800", [], {}, [[]], 10**400)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), odd=st.sampled_from(ODD))
def test_a_value_spoilt_anywhere_leaves_the_table_written(spoiling, data, odd):
    grid, runs, whole_files, out = spoiling
    folder = runs / grid.cells[0].name
    name = data.draw(st.sampled_from(sorted(whole_files)))
    values = [json.loads(line) for line in whole_files[name]]
    trail = data.draw(st.sampled_from(sorted(places(values), key=str)))
    lines = changed(values, trail, odd)
    lines = lines if isinstance(lines, list) else [lines]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        write_tables(grid, [], runs, out)
    finally:
        (folder / name).write_text("".join(whole_files[name]))
    others = json.loads((out / "table.json").read_text("utf-8"))["entries"][1:]
    assert {entry["status"] for entry in others} == {"1 seed"}


@pytest.fixture(scope="module")
def spoiling(tmp_path_factory):
    """Return a grid, its runs, the lines of the first run's files, and a place for tables."""
    folder = tmp_path_factory.mktemp("spoiling")
    grid = small_grid(folder, columns=("x",), seeds="[0]")
    shape = {"clients": 2, "classes": ("a", "b")}
    runs = run_cells(grid, folder / "runs", **shape)
    names = ("recipe.json", "federation.json", "summary.json", "rounds.jsonl")
    first = runs / grid.cells[0].name
    files = {name: (first / name).read_text().splitlines(keepends=True) for name in names}
    return grid, runs, files, folder / "out"


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        (
            "rounds.jsonl",
            '"train": 0.5',
            '"train": Infinity',
            "round 1 holds a number out of range",
        ),
        ("rounds.jsonl", '"macro": {"accuracy": 0', '"macro": {"accuracy": 7', "round 1 holds"),
        ("federation.json", '"weight": 0', '"weight": -1', "client 0 holds a number out of range"),
    ],
)
def test_a_number_out_of_range_is_a_message(tmp_path, name, old, new, reason):
    grid = small_grid(tmp_path, columns=("x",), seeds="[0]")
    path = run_cells(grid, tmp_path / "runs") / grid.cells[0].name / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    first, *others = read_table(grid, [], tmp_path / "runs").entries
    assert first.status.startswith(f"failed: {reason}")
    assert {entry.status for entry in others} == {"1 seed"}


def test_a_round_that_does_not_name_its_clients_is_a_message(tmp_path):
    grid = small_grid(tmp_path, seeds="[0]")
    folder = run_cells(grid, tmp_path / "runs") / grid.cells[0].name
    lines = (folder / "rounds.jsonl").read_text().replace('"client": 3', '"client": 99')
    (folder / "rounds.jsonl").write_text(lines)
    entry = read_table(grid, [], tmp_path / "runs").entries[0]
    assert entry.status == "failed: it is damaged: KeyError: 99"


def test_a_run_of_another_recipe_in_a_cells_folder_is_not_taken_for_it(tmp_path):
    grid = small_grid(tmp_path, seeds="[0]")
    runs = run_cells(grid, tmp_path / "runs")
    path = runs / grid.cells[0].name / "recipe.json"
    recipe = json.loads(path.read_text())
    path.write_text(json.dumps(recipe | {"local": recipe["local"] | {"lr": 0.5}}))
    status = read_table(grid, [], runs).entries[0].status
    assert status.startswith("failed: holds a run of another recipe (local.lr: 0.5 before")


def test_the_name_of_a_run_does_not_make_it_another(tmp_path):
    grid = small_grid(tmp_path, seeds="[0]")
    runs = run_cells(grid, tmp_path / "runs")
    path = runs / grid.cells[0].name / "recipe.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"name": "other"}))
    assert read_table(grid, [], runs).entries[0].status == "1 seed"


def test_a_grid_of_private_runs_is_read_and_its_images_estimated(tmp_path):
    grid = small_grid(tmp_path, seeds="[0]")
    runs = run_cells(grid, tmp_path / "runs")
    path = hide(runs / grid.cells[0].name)
    run, records = read_run(path), RunFolder(path).records()
    everyone = run.recipe.local.epochs * run.federation.train * len(records)
    assert count_images(run, records) == everyone
    # The recipe is another one now, which is the only thing that is wrong with it.
    (first, *_) = read_cells(grid, runs)
    assert first.state is State.FAILED
    assert "privacy" in first.message
