"""Every number of a grid's table, worked out again from the files by plain loops."""

import json
import math
import statistics

import pytest

from fedbb.paper.tables import Printed
from fedbb.recipes.grid.grid import read_grid
from fedbb.report.sweep.table_files import read_table
from fedbb.runs.sweep import State, note_failure
from helpers.grid_results import run_cells, sketch_of, small_grid, write_grid
from helpers.run_builder import build

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
