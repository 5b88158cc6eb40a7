"""NIID-Bench's figures: each is at a place of the grid, and ours are judged by 1.5 points."""

import csv
import json

import pytest
from studies.stored import GRIDS

from fedbb.recipes.grid import read_grid
from studies import published


def test_every_published_figure_is_at_a_place_of_the_grid_once():
    axes = read_grid(GRIDS / f"{published.GRID}.toml").axes
    places = [(entry.partition, entry.method) for entry in published.PUBLISHED]
    assert len(set(places)) == len(places) == 12
    for partition, method in places:
        assert partition in axes["partition"]
        assert method in axes["method"]


@pytest.mark.parametrize(
    ("accuracies", "shown"),
    [
        ([], "| – | – | not run |"),
        ([0.671], "| 67.1, 1 seed | −1.1 | yes |"),
        ([0.66, 0.664], "| 66.2 ± 0.3, 2 seeds | −2.0 | no |"),
        ([0.70, 0.71], "| 70.5 ± 0.7, 2 seeds | +2.3 | no |"),
    ],
)
def test_the_mean_of_ours_is_compared_with_the_published_figure(tmp_path, accuracies, shown):
    folder = tmp_path / published.GRID
    folder.mkdir()
    (folder / "about.json").write_text(json.dumps({}))
    with (folder / "cells.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["partition", "method", "seed", "test accuracy"])
        for seed, accuracy in enumerate(accuracies):
            writer.writerow([published.LABELS, "FedAvg", seed, accuracy])
    line = published.table("18a", tmp_path).splitlines()[2]
    assert line == f"| 18a.1 | {published.LABELS} | FedAvg | 68.2 | 62.5 {shown}"
