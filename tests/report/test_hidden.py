"""Runs whose clients are hidden are read, drawn and compared, without what nobody knows of them."""

import json
import math

import pytest

from fedbb.report.compare import compare_groups
from fedbb.report.groups import group
from fedbb.report.page.report import figure_data
from fedbb.report.page.tables import fairness_of
from fedbb.report.results import read_run, read_runs
from fedbb.report.text import data_title
from helpers.hidden_runs import hide
from helpers.run_builder import Sketch, build, build_all

METHODS = ("fedavg", "fedbb")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    sketches = [Sketch(method, seed) for method in METHODS for seed in range(2)]
    paths = build_all(tmp_path_factory.mktemp("runs"), sketches)
    (found,) = group(read_runs([hide(path) for path in paths]))
    return found


def test_a_hidden_federation_has_a_number_of_clients_and_no_shares(tmp_path):
    run = read_run(hide(build(tmp_path / "run", Sketch("fedbb", clients=4))))
    assert run.federation.known == ()
    assert len(run.federation.clients) == run.federation.hidden == 4
    assert all(math.isnan(cases) for cases in run.federation.class_counts)
    assert "4 clients" in data_title(run)


def test_a_page_gets_numbers_or_nothing(comparison):
    found = figure_data(comparison)
    json.dumps(found, allow_nan=False)
    assert found["weights"] == []
    assert found["clients"] == [[], []]
    assert found["partition"]["clients"] == []
    assert found["classes"]["cases"] == [None] * 10


def test_fairness_is_told_of_classes_and_undefined_of_clients(comparison):
    fair = fairness_of(comparison, comparison.methods[0])
    assert not math.isnan(fair.worst_class_score.mean)
    assert math.isnan(fair.head.mean)
    assert math.isnan(fair.worst_client.mean)


def test_two_groups_are_compared_without_heads_tails_and_clients(comparison):
    found = compare_groups(*comparison.methods)
    assert found.clients == ()
    assert found.classes_of("head") == found.classes_of("tail") == []
