"""Equal runs get equal verdicts, and equal heads and tails, wherever they are compared."""

import json

import numpy as np
import pytest
from studies.collect import collect
from studies.stored import read_stored

from fedbb.recipes.grid import read_grid
from fedbb.report import compare
from fedbb.report.groups import gather, group
from fedbb.report.method_comparison import compare_methods
from fedbb.report.page.tables import class_scores, fairness_of
from fedbb.report.plots.figures import class_rows
from fedbb.report.statistics import Verdict
from fedbb.report.sweep.table_files import difference_table, read_table
from helpers.grid_results import run_cells, write_grid
from studies import tables

METRIC = "balanced_accuracy"
NAMES = ("fedbb", "torch", "numpy", "python", "machine", "cores", "vectors")
ENVIRONMENT = dict.fromkeys(NAMES, "1")
ROWS = {"FedAvg": "fedavg", "FedBB": "fedbb"}


def make_runs(folder, gaps=(0.01, 0.02, 0.03)):
    """Return a grid's file and its runs, FedBB above FedAvg by these gaps, seed by seed."""
    path = write_grid(folder / "grid.toml", ROWS, ["a"])
    grid = read_grid(path)
    runs = run_cells(grid, folder / "runs")
    for cell in grid.cells:
        file = runs / cell.name / "summary.json"
        summary = json.loads(file.read_text())
        score = 0.5 + 0.1 * cell.seed + (gaps[cell.seed] if cell.at["method"] == "FedBB" else 0)
        for which in ("best", "final"):
            summary[which]["scores"]["test"]["macro"][METRIC] = score
        file.write_text(json.dumps(summary))
        (runs / cell.name / "environment.json").write_text(json.dumps(ENVIRONMENT))
    return path, runs


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ((0.01, 0.02, 0.03), Verdict.UNCLEAR),
        ((0.019, 0.020, 0.021), Verdict.AHEAD),
        ((-0.019, -0.020, -0.021), Verdict.BEHIND),
    ],
)
def test_report_compare_sweep_and_studies_give_the_same_verdict(tmp_path, gaps, verdict):
    path, runs = make_runs(tmp_path, gaps)
    (comparison,) = group(gather([runs]).runs)

    reported = compare_methods(comparison)
    (item,) = [item for item in reported.differences if item.metric == METRIC]
    assert item.paired.verdict is verdict
    assert f", {verdict} (3 of 3 seeds)" in item.text

    score = compare.compare_groups(*comparison.methods, [METRIC]).scores[0]
    assert score.paired == item.paired

    grid = read_grid(path)
    table = read_table(grid, [], runs)
    (entry,) = [entry for entry in table.entries if entry.row == "FedBB"]
    (gap,) = entry.scores[0].final.gaps
    assert gap.paired.verdict is verdict
    assert f", {verdict} (3 of 3 seeds)" in difference_table(table).texts[0][-2]

    collect(path, runs, tmp_path / "results" / "grid")
    stored = read_stored("grid", tmp_path / "results", tmp_path)
    text = tables.differences(stored, f"test {METRIC}", [("FedBB", "FedAvg")])
    assert f", {verdict} (3 of 3 seeds)" in text


def test_sentences_of_report_and_compare_agree(tmp_path):
    _, runs = make_runs(tmp_path)
    (comparison,) = group(gather([runs]).runs)
    (sentence,) = compare_methods(comparison).sentences
    other = compare.verdict(compare.compare_groups(*comparison.methods, [METRIC]))
    assert sentence.removeprefix("FedBB").replace("FedAvg", "A") == other.removeprefix("B")
    assert "shows no clear difference" in sentence


def test_report_compare_and_figures_take_the_same_classes_for_head_and_tail(tmp_path):
    _, runs = make_runs(tmp_path)
    (comparison,) = group(gather([runs]).runs)
    a, b = comparison.methods
    found = compare.compare_groups(a, b)
    names = comparison.federation.classes
    parts = {
        part: [names.index(line.name) for line in found.classes_of(part)]
        for part in ("head", "tail")
    }
    assert [len(indices) for indices in parts.values()] == [3, 3]
    scores, fairness = class_scores(comparison, a), fairness_of(comparison, a)
    assert fairness.head.mean == pytest.approx(np.mean(scores[:, parts["head"]]))
    assert fairness.tail.mean == pytest.approx(np.mean(scores[:, parts["tail"]]))
    drawn = [int(index) for (index,) in class_rows(comparison).classes]
    assert set(drawn[:3]) == set(parts["head"])
    assert set(drawn[-3:]) == set(parts["tail"])
