"""Runs, and the report on them."""

import pytest

from fedbb.report.groups import gather
from fedbb.report.page.report import write_report
from helpers.run_builder import Sketch, build_all

SKETCHES = [
    *(Sketch(method, seed) for method in ("fedavg", "fedavg-scaled", "fedbb") for seed in range(3)),
    *(Sketch(method, 0, data="mosaic", task="multilabel") for method in ("fedavg", "fedbb")),
]


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Return runs of three methods on two data sets, with one unfinished and one damaged."""
    root = tmp_path_factory.mktemp("runs")
    paths = build_all(root, [*SKETCHES, Sketch("fedbb", 7, finished=False), Sketch("fedbb", 8)])
    (paths[-1] / "rounds.jsonl").write_text("{\n")
    return root


@pytest.fixture(scope="session")
def report(runs, tmp_path_factory):
    """Return the path of a report on these runs."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(gather([runs]), path)
    return path
