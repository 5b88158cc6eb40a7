"""A grid's table in Markdown, CSV and JSON, and in the terminal, whatever its labels are."""

import csv
import io
import json
import re

import pytest
from rich.console import Console

from fedbb.errors import RunError
from fedbb.paper.tables import Printed
from fedbb.recipes.grid import read_grid
from fedbb.report.sweep.table_files import overview_table, read_table, show_table, write_tables
from fedbb.runs.sweep import note_failure
from helpers.grid_results import run_cells, small_grid

EVIL = '<script>alert("x")</script> | a_b 5 % & \\ `c` [d](e) $f$ #{g}~^'
LONG = "日本語 ünïcode ☃ " * 12
ROWS = {EVIL: "fedavg", "=cmd|' /C calc'!A0": "fedavg-scaled", LONG: "fedbb"}
FORMULA = ("=", "+", "-", "@")
METRIC = "balanced_accuracy"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return (grid, printed numbers, runs, folder of tables) with hostile labels everywhere."""
    folder = tmp_path_factory.mktemp("hostile")
    grid = small_grid(folder, rows=ROWS, columns=("x\ny", "+x"), seeds="[0, 1]")
    skipped = grid.cells[-1]
    runs = run_cells(grid, folder / "runs", lambda cell: cell is not skipped, classes=(EVIL, LONG))
    note_failure(runs / skipped.name, f"{EVIL}\n| second line |")
    numbers = [Printed(dict(grid.cells[0].at), METRIC, 61.25, 0.5, f"a note: {EVIL}")]
    write_tables(grid, numbers, runs, folder / "out")
    return grid, numbers, runs, folder / "out"


def cells_of(line):
    """Split a line of a Markdown table where its bars are not escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_five_files_are_written_and_their_paths_returned(made, tmp_path):
    names = ["table.md", "table.csv", "table.tex", "table.json", "cost.md"]
    assert write_tables(*made[:3], tmp_path) == [tmp_path / name for name in names]
    assert sorted(path.name for path in made[3].iterdir()) == sorted(names)


def test_every_line_of_a_markdown_table_has_as_many_cells_as_its_head(made):
    text = (made[3] / "table.md").read_text("utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    assert len(tables) == 4
    for table in tables:
        assert len({len(cells_of(line)) for line in table.splitlines()}) == 1
    assert "<script" not in re.sub(r"\\<", "", text)


def test_markdown_shows_paper_ours_and_difference(made):
    grid, numbers, runs, out = made
    text = (out / "table.md").read_text("utf-8")
    score = read_table(grid, numbers, runs).entries[0].scores[0]
    lines = [cells_of(line) for line in text.splitlines() if line.startswith("|")]
    overview = [cells[1:3] for cells in lines if len(cells) == 4][2:5]
    mean, deviation = score.best.spread.mean, score.best.spread.deviation
    difference = f"{mean - 61.25:+.2f}".replace("-", "−")
    assert overview == [
        ["paper", "61.25 ± 0.50"],
        ["ours", f"{mean:.2f} ± {deviation:.2f}"],
        ["difference", difference],
    ]


def test_what_failed_is_told_in_words(made):
    text = (made[3] / "table.md").read_text("utf-8")
    assert "Of 12 runs: 11 finished, 1 failed." in text
    assert re.search(r"seed 1: failed: .*second line", text)
    assert "(1 of 2 seeds)" in text
    assert "so its score is optimistic" in text


def test_csv_holds_full_precision_and_no_formula(made):
    grid, numbers, runs, out = made
    table = read_table(grid, numbers, runs)
    rows = list(csv.DictReader(io.StringIO((out / "table.csv").read_text("utf-8"), newline="")))
    assert len(rows) == len(table.entries) == 6
    for row, entry in zip(rows, table.entries, strict=True):
        score = entry.scores[0]
        assert float(row["best mean"]) == score.best.spread.mean
        assert float(row["final deviation"] or "nan") == pytest.approx(
            score.final.spread.deviation, nan_ok=True
        )
        assert row["runs"].split() == [run.folder for run in entry.runs]
        assert not row["axis: method"].startswith(FORMULA)
        assert not row["axis: skew"].startswith(FORMULA)
    (first, *_) = rows
    assert (first["paper mean"], first["paper spread"]) == ("61.25", "0.5")
    gap = table.entries[4].scores[0].final.gaps[1]
    assert float(rows[4]["final minus control"]) == gap.paired.spread.mean
    assert float(rows[4]["final minus control, low"]) == gap.paired.interval.low
    assert rows[0]["final minus control"] == ""


def test_json_traces_every_number_to_a_folder_that_is_there(made):
    _, _, runs, out = made
    plain = json.loads((out / "table.json").read_text("utf-8"))
    assert (out / plain["runs"]).resolve() == runs
    finished = [run for entry in plain["entries"] for run in entry["runs"] if run["scores"]]
    assert len(finished) == 11
    for run in finished:
        summary = json.loads((out / plain["runs"] / run["folder"] / "summary.json").read_text())
        best, final = run["scores"][METRIC]
        assert best == 100 * summary["best"]["scores"]["test"]["macro"][METRIC]
        assert final == 100 * summary["final"]["scores"]["test"]["macro"][METRIC]
    assert plain["entries"][0]["row"] == EVIL
    assert plain["entries"][0]["scores"][0]["paper"]["mean"] == 61.25
    assert plain["entries"][5]["scores"][0]["best"]["spread"]["deviation"] is None


def test_equal_results_give_equal_bytes_however_long_they_took(tmp_path):
    texts = []
    for name, seconds in (("first", 0.5), ("second", 7.25)):
        grid = small_grid(tmp_path, seeds="[0, 1]")
        runs = run_cells(grid, tmp_path / name / "runs")
        for cell in grid.cells:
            path = runs / cell.name / "rounds.jsonl"
            path.write_text(path.read_text().replace('"train": 0.5', f'"train": {seconds}'))
        paths = write_tables(grid, [], runs, tmp_path / name / "out")
        texts.append({path.name: path.read_bytes() for path in paths})
    costs = [found.pop("cost.md") for found in texts]
    assert texts[0] == texts[1]
    assert costs[0] != costs[1]
    assert b"| 45.0 \xc2\xb1 0.0 |" in costs[1]  # 6 rounds of 7.25 and 0.25 seconds


def test_the_terminal_shows_labels_as_words(made):
    target = io.StringIO()
    console = Console(file=target, width=200, color_system=None)
    console.print(show_table(read_table(*made[:3])))
    shown = target.getvalue()
    assert "[d](e)" in shown
    assert "61.25 ± 0.50" in shown
    assert "What one run took" in shown
    assert "Of 12 runs: 11 finished, 1 failed." in shown


def test_signs_that_steer_a_terminal_are_not_shown(tmp_path):
    grid = small_grid(tmp_path, rows={"bell\x07": "fedavg"}, columns=("x",))
    target = io.StringIO()
    Console(file=target, width=80).print(show_table(read_table(grid, [], tmp_path)))
    assert "\x07" not in target.getvalue()


def test_a_grid_without_runs_shows_printed_numbers_alone(tmp_path):
    grid = small_grid(tmp_path, columns=("x",), seeds="[]")
    numbers = [Printed({"method": "FedBB", "skew": "x"}, METRIC, 70.0)]
    write_tables(grid, numbers, tmp_path / "runs", tmp_path / "out")
    text = (tmp_path / "out" / "table.md").read_text("utf-8")
    assert "This grid has no runs; it shows printed numbers only." in text
    assert "| FedBB | paper | 70.00 |" in text
    assert "## Paired differences" not in text


def test_of_a_column_only_the_metrics_that_the_paper_prints_are_in_the_overview(tmp_path):
    grid = small_grid(tmp_path, metrics='["f1", "accuracy"]')
    numbers = [Printed({"method": "FedBB", "skew": "δ = 0.1"}, "accuracy", 70.0)]
    table = overview_table(read_table(grid, numbers, tmp_path))
    assert table.head == (
        *("method", "", "δ = 0.1, accuracy"),
        *("δ = 0.2, macro F1", "δ = 0.2, accuracy"),
    )
    rows = [row[:3] for row in table.rows]
    assert rows[:3] == [
        ("FedAvg", "ours", "not run"),
        ("Control", "ours", "not run"),
        ("FedBB", "paper", "70.00"),
    ]
    assert [row[1] for row in table.rows] == ["ours", "ours", "paper", "ours", "difference"]


def test_printed_minutes_stand_beside_our_seconds(tmp_path):
    grid = small_grid(tmp_path, columns=("x",), seeds="[0]")
    numbers = [Printed({"method": "FedBB"}, "minutes", 1311.0)]
    runs = run_cells(grid, tmp_path / "runs")
    write_tables(grid, numbers, runs, tmp_path / "out")
    text = (tmp_path / "out" / "cost.md").read_text("utf-8")
    assert re.search(r"^\| FedBB \| x \| 1,311 \| 4\.5 \|", text, re.M)
    assert re.search(r"^\| FedAvg \| x \| – \| 4\.5 \|", text, re.M)


def test_a_smaller_scale_is_told_above_and_below_the_numbers(tmp_path):
    small = tmp_path / "small.toml"
    small.write_text('note = "Digits stand for CIFAR-10."\nseeds = [7]\n')
    small_grid(tmp_path, columns=("x",))
    grid = read_grid(tmp_path / "grid.toml", [small])
    numbers = [Printed({"method": "FedBB"}, METRIC, 70.0)]
    write_tables(grid, numbers, tmp_path / "runs", tmp_path / "out")
    text = (tmp_path / "out" / "table.md").read_text("utf-8")
    assert "- Digits stand for CIFAR-10.\n" in text
    assert (
        "## Best round, 1 seed: the paper and ours, ours at another scale (see the notes)" in text
    )
    assert "Digits stand for CIFAR-10." in (tmp_path / "out" / "table.tex").read_text("utf-8")


def test_without_printed_numbers_there_is_no_line_for_them(tmp_path):
    write_tables(small_grid(tmp_path), [], tmp_path / "runs", tmp_path / "out")
    text = (tmp_path / "out" / "table.md").read_text("utf-8")
    assert "| method | δ = 0.1 | δ = 0.2 |" in text
    assert "| FedBB | not run | not run |" in text


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(RunError, match=r"out.*cannot be written"):
        write_tables(small_grid(tmp_path), [], tmp_path, tmp_path / "out")
