"""The paper's differences beside ours: both are found, and agree only where ours are clear."""

import pytest
from studies.stored import GRIDS, RESULTS, read_stored

from fedbb.recipes.grid import read_grid
from fedbb.report.statistics import paired_difference
from helpers.cover import few
from studies import against_paper


@pytest.mark.parametrize(
    "match", few(against_paper.MATCHES, 4), ids=lambda m: f"{m.title} {m.grid}"
)
def test_a_setting_is_in_our_grid_and_in_the_papers_table(match):
    axes = read_grid(GRIDS / f"{match.grid}.toml").axes
    assert all(label in axes[axis] for axis, label in match.at.items())
    assert against_paper.paper_difference(match, ("FedBB", "FedAvg")) is not None


def test_differences_are_those_of_the_printed_means_and_of_the_stored_scores():
    (match,) = [
        m
        for m in against_paper.MATCHES
        if (m.title, m.grid) == ("CIFAR-10, δ = 0.5", "natural-images")
    ]
    assert against_paper.paper_difference(match, ("FedBB", "FedAvg")) == pytest.approx(
        88.78 - 86.14
    )
    own = against_paper.our_difference(match, ("FedBB", "FedAvg"), RESULTS)
    stored = read_stored("natural-images")
    scores = [
        stored.scores("test accuracy", {"method": m, "data": "δ = 0.5"})
        for m in ("FedBB", "FedAvg")
    ]
    assert own == paired_difference(*scores)


@pytest.mark.parametrize(
    ("own", "theirs", "word"),
    [
        ((0.7, 0.71, 0.72), 1.0, "yes"),
        ((0.7, 0.71, 0.72), -1.0, "no"),
        ((0.3, 0.31, 0.32), -1.0, "yes"),
        ((0.3, 0.7, 0.5), 1.0, "open"),
        ((0.5, 0.5, 0.5), 1.0, "open"),
    ],
)
def test_ours_agree_only_by_a_clear_difference_of_the_same_sign(own, theirs, word):
    base = dict.fromkeys(range(3), 0.5)
    found = paired_difference(dict(enumerate(own)), base)
    assert against_paper.agreement(theirs, found) == word


def test_a_grid_without_results_has_no_rows(tmp_path):
    assert against_paper.table("9", tmp_path).count("\n") == 1
