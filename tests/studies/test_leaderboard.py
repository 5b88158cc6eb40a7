"""The leaderboard shows every stored method and setting, with what is needed to get it again."""

import math
from itertools import pairwise

import pytest
from studies.leaderboard import leaderboard, make_page
from studies.stored import RESULTS, read_stored

from fedbb.report.page.shell import render_page, write_page
from fedbb.report.statistics import interval_of


def test_a_row_is_a_method_in_a_setting_with_mean_interval_worst_class_and_digests():
    stored = read_stored("natural-images")
    table = leaderboard(stored)
    own = [row for row in stored.cells if row["method"] == "FedAvg" and row["data"] == "δ = 0.1"]
    (found,) = [row for row in table.rows if row[:2] == ("FedAvg", "δ = 0.1")]
    scores = [float(row["test accuracy"]) for row in own]
    assert math.isclose(found[3].value, sum(scores) / len(scores))
    assert math.isclose(found[4].value, interval_of(scores).low)
    assert found[6].text == "1.00"
    assert found[7] == ", ".join(f"{row['cell'][-8:]}: {row['sha256'][:12]}" for row in own)
    recalls = {
        row["cell"]: min(
            float(line["recall"]) for line in stored.classes if line["cell"] == row["cell"]
        )
        for row in own
    }
    assert math.isclose(found[5].value, sum(recalls.values()) / len(own))
    settings = {(row["method"], row["data"]) for row in stored.cells}
    assert {row[:2] for row in table.rows} == settings


@pytest.mark.parametrize("name", sorted(path.parent.name for path in RESULTS.glob("*/about.json")))
def test_the_end_of_a_name_finds_one_cell(name):
    names = [row["cell"] for row in read_stored(name).cells]
    for cell in names:
        assert [other for other in names if cell.rpartition("_")[2] in other] == [cell]


def test_the_best_of_a_setting_comes_first():
    rows = leaderboard(read_stored("natural-images")).rows
    for above, below in pairwise(rows):
        if above[1] == below[1]:
            assert above[3].value >= below[3].value


def test_the_page_has_a_board_for_every_grid_with_methods_and_can_be_sorted_and_filtered(
    tmp_path, visit
):
    page = make_page()
    names = {board["name"] for board in page.data["boards"]}
    assert {"natural-images", "chest-xrays", "all-methods"} <= names
    for board in page.data["boards"]:
        assert board["command"].startswith("fedbb sweep studies/")
        assert board["verify"].startswith(f"fedbb verify studies/{board['name']}.toml ")
    assert "Leaderboard" in render_page(page)
    with visit(write_page(tmp_path / "board.html", page)) as opened:
        opened.page.fill("#words", "moon")
        shown = opened.page.evaluate(
            "() => [...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden)"
            ".map((row) => row.textContent.toLowerCase())"
        )
    assert shown
    assert all("moon" in text for text in shown)
