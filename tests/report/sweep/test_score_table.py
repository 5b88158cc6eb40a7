"""The runs of a grid's cells: what can be used, and a message for everything else."""

import json
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.paper.tables import Printed
from fedbb.recipes.grid import read_grid
from fedbb.report.results import read_run
from fedbb.report.sweep.score_table import count_images, read_cells
from fedbb.report.sweep.table_files import read_table, write_tables
from fedbb.runs.folder import RunFolder
from fedbb.runs.sweep import State, note_failure
from helpers.grid_results import run_cells, sketch_of, small_grid, write_grid
from helpers.hidden_runs import hide
from helpers.run_builder import build


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


@settings(max_examples=30, deadline=None)
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


METRIC = "balanced_accuracy"


def printed(method, skew, mean, spread=None, metric=METRIC):
    return Printed({"method": method, "skew": skew}, metric, mean, spread)


def entry_of(table, row, column="δ = 0.1"):
    (entry,) = (one for one in table.entries if (one.row, one.column) == (row, (column,)))
    return entry


def scores_by_seed(grid, runs, row, column, which):
    """Return {seed: points} as read straight from the summaries."""
    found = {}
    for cell in grid.cells:
        if cell.at == {"method": row, "skew": column}:
            summary = json.loads((runs / cell.name / "summary.json").read_text())
            found[cell.seed] = 100 * summary[which]["scores"]["test"]["macro"][METRIC]
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    grid = small_grid(folder)
    return grid, run_cells(grid, folder / "runs", validation=True)


@pytest.mark.parametrize("which", ["best", "final"])
def test_scores_are_mean_and_deviation_over_seeds_best_and_final_apart(whole, which):
    table = read_table(whole[0], [], whole[1])
    assert len(table.entries) == 6
    for entry in table.entries:
        values = list(scores_by_seed(*whole, entry.row, *entry.column, which).values())
        (score,) = entry.scores
        spread = score.ours(which).spread
        assert spread.number == len(values) == 3
        assert spread.mean == pytest.approx(statistics.mean(values))
        assert spread.deviation == pytest.approx(statistics.stdev(values))


@pytest.mark.parametrize("which", ["best", "final"])
def test_gaps_are_paired_by_seed_against_fedavg_and_the_control(whole, which):
    table = read_table(whole[0], [], whole[1])
    gaps = entry_of(table, "FedBB").scores[0].ours(which).gaps
    assert [(gap.against, gap.is_control) for gap in gaps] == [("FedAvg", False), ("Control", True)]
    own = scores_by_seed(*whole, "FedBB", "δ = 0.1", which)
    for gap in gaps:
        other = scores_by_seed(*whole, gap.against, "δ = 0.1", which)
        values = [own[seed] - other[seed] for seed in (0, 1, 2)]
        reach = 4.302653 * statistics.stdev(values) / math.sqrt(3)  # t(0.975; 2)
        assert gap.paired.seeds == (0, 1, 2)
        assert gap.paired.spread.mean == pytest.approx(statistics.mean(values))
        assert gap.paired.interval.low == pytest.approx(statistics.mean(values) - reach, abs=1e-5)
        assert gap.paired.interval.high == pytest.approx(statistics.mean(values) + reach, abs=1e-5)


def test_fedavg_has_no_rival_and_the_control_only_fedavg(whole):
    table = read_table(whole[0], [], whole[1])
    assert entry_of(table, "FedAvg").scores[0].final.gaps == ()
    (gap,) = entry_of(table, "Control").scores[0].final.gaps
    assert gap.against == "FedAvg"


def test_the_papers_number_stands_beside_ours_by_the_grids_choice(whole):
    numbers = [printed("FedBB", "δ = 0.1", 71.5, 0.25), printed("FedAvg", "δ = 0.2", 60.0)]
    table = read_table(whole[0], numbers, whole[1])
    score = entry_of(table, "FedBB").scores[0]
    best = statistics.mean(scores_by_seed(*whole, "FedBB", "δ = 0.1", "best").values())
    assert score.paper == numbers[0]
    assert score.difference("best") == pytest.approx(best - 71.5)
    assert entry_of(table, "FedBB", "δ = 0.2").scores[0].paper is None
    assert math.isnan(entry_of(table, "FedBB", "δ = 0.2").scores[0].difference("best"))
    assert table.unplaced == ()


def test_a_printed_number_without_a_place_is_kept_apart(whole):
    numbers = [printed("FedWow", "δ = 0.1", 1.0), Printed({"method": "FedBB"}, METRIC, 2.0)]
    assert read_table(whole[0], numbers, whole[1]).unplaced == tuple(numbers)


def test_an_axis_of_one_label_need_not_be_named_by_a_printed_number(tmp_path):
    grid = small_grid(tmp_path, columns=("δ = 0.1",))
    table = read_table(grid, [Printed({"method": "FedBB"}, METRIC, 2.0)], tmp_path)
    assert entry_of(table, "FedBB").scores[0].paper.mean == 2.0


def test_a_printed_metric_that_was_not_scored_has_no_number_of_ours(whole):
    table = read_table(whole[0], [printed("FedBB", "δ = 0.1", 5.0, metric="luck")], whole[1])
    assert table.metrics == (METRIC, "luck")
    score = entry_of(table, "FedBB").scores[1]
    assert score.paper.mean == 5.0
    assert math.isnan(score.final.spread.mean)


def test_printed_minutes_go_with_the_cost_wherever_they_hold(whole):
    numbers = [Printed({"method": "FedBB"}, "minutes", 12.0)]
    numbers += [printed("FedAvg", "δ = 0.2", 9.0, metric="minutes")]
    table = read_table(whole[0], numbers, whole[1])
    assert table.metrics == (METRIC,)
    assert table.unplaced == ()
    assert [entry.minutes for entry in table.entries] == [None, 9.0, None, None, 12.0, 12.0]


def test_every_number_traces_to_its_folders(whole):
    grid, runs = whole
    for entry in read_table(grid, [], runs).entries:
        assert [run.seed for run in entry.runs] == [0, 1, 2]
        values = [run.scores[METRIC][1] for run in entry.runs]
        assert statistics.mean(values) == pytest.approx(entry.scores[0].final.spread.mean)
        for run in entry.runs:
            summary = json.loads((runs / run.folder / "summary.json").read_text())
            assert run.sha256 == summary["sha256"]
            assert run.best_round == summary["best"]["round"]
            assert run.chosen_on == "validation"


def test_what_is_missing_is_said_honestly(tmp_path):
    grid = small_grid(tmp_path)
    chosen = {("FedAvg", 0), ("FedAvg", 1), ("FedBB", 1)}
    runs = run_cells(grid, tmp_path / "runs", lambda cell: (cell.at["method"], cell.seed) in chosen)
    by_place = {(*cell.at.values(), cell.seed): cell for cell in grid.cells}
    failing = by_place["Control", "δ = 0.1", 2]
    note_failure(runs / failing.name, "loss is not finite")
    begun = by_place["Control", "δ = 0.2", 0]
    build(runs / begun.name, sketch_of(begun, rounds=2, finished=False))
    table = read_table(grid, [], runs)
    assert entry_of(table, "FedAvg").status == "2 of 3 seeds"
    assert entry_of(table, "FedBB").status == "1 of 3 seeds"
    assert entry_of(table, "Control").status == "failed: loss is not finite"
    assert entry_of(table, "Control", "δ = 0.2").status == "unfinished: 2 of 6 rounds"
    assert [run.state for run in entry_of(table, "Control").runs][2] is State.FAILED
    (gap,) = entry_of(table, "FedBB").scores[0].final.gaps[:1]
    assert gap.paired.seeds == (1,)
    assert math.isnan(gap.paired.interval.low)


def test_nothing_run_is_told_as_such(tmp_path):
    table = read_table(small_grid(tmp_path), [], tmp_path / "nowhere")
    assert {entry.status for entry in table.entries} == {"not run"}


def test_a_combination_left_out_says_why(tmp_path):
    path = write_grid(tmp_path / "grid.toml", {"FedAvg": "fedavg", "FedLC": "fedlc"}, ["a", "b"])
    skip = '[[skip]]\nwhere = { method = "FedLC", skew = "b" }\nwhy = "it is not defined"\n'
    path.write_text(path.read_text() + skip)
    table = read_table(read_grid(path), [], tmp_path)
    assert entry_of(table, "FedLC", "b").status == "left out: it is not defined"
    assert entry_of(table, "FedLC", "a").status == "not run"


def test_the_control_with_the_same_hyper_parameters_is_the_rival(tmp_path):
    rows = {"FedAvg": "fedavg", "C4": "fedavg-scaled", "C5": "fedavg-scaled", "FedBB": "fedbb"}
    path = write_grid(tmp_path / "grid.toml", rows, ["a"], seeds="[0, 1]")
    text = path.read_text()
    for label, mu in (("C4", 4.0), ("C5", 5.0), ("FedBB", 5.0)):
        method = rows[label]
        old = f'label = "{label}"\nset = {{ "method.name" = "{method}" }}'
        assert old in text
        text = text.replace(old, old[:-2] + f', "method.options.mu" = {mu} }}')
    path.write_text(text)
    grid = read_grid(path)
    table = read_table(grid, [], run_cells(grid, tmp_path / "runs"))
    gaps = entry_of(table, "FedBB", "a").scores[0].final.gaps
    assert [gap.against for gap in gaps] == ["FedAvg", "C5"]
