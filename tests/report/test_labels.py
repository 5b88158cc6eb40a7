"""Names and figures as readers see them."""

import doctest
import math

import pytest

from fedbb._util import table
from fedbb.report import labels
from fedbb.report.results import read_run
from fedbb.report.statistics import Spread
from helpers.run_builder import Sketch, build


@pytest.mark.parametrize("module", [labels, table])
def test_the_examples_in_the_docstrings_hold(module):
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


def test_undefined_figures_are_a_dash_and_one_seed_has_no_margin():
    nothing, single = Spread(math.nan, math.nan, 0), Spread(0.5, math.nan, 1)
    assert labels.score_text(nothing) == "–"
    assert labels.score_text(single) == "50.0"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"long_tail": 0.01, "partition": {"kind": "even"}}, "set, long tail 0.01, even, 1 client"),
        ({"partition": {"kind": "column", "column": "site"}}, "set, column site, 1 client"),
    ],
)
def test_a_title_tells_what_was_done_to_the_data(tmp_path, data, expected):
    recipe = {"data": {"name": "set", **data}}
    run = read_run(build(tmp_path / "run", Sketch(data="set", clients=1, recipe=recipe)))
    assert labels.data_title(run) == expected


def test_methods_are_called_as_they_call_themselves():
    assert labels.method_title("fedavg-scaled") == "FedAvg-scaled"
    assert "step sizes of PNB" in labels.method_description("fedavg-scaled")
    assert (labels.method_title("fedwow"), labels.method_description("fedwow")) == ("fedwow", "")


def test_every_metric_that_is_scored_has_a_title():
    assert labels.metric_title("balanced_accuracy") == "balanced accuracy"
    assert labels.metric_title("mean_luck") == "mean luck"
    assert labels.capitalize("macro F1") == "Macro F1"
