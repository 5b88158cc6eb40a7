"""The sanity table holds every method, and each of them learns."""

import pytest
from studies.stored import ROOT, read_stored

from fedbb.methods import METHODS
from studies import every_method, page


@pytest.fixture(scope="module")
def stored():
    return read_stored(every_method.GRID)


def test_the_grid_holds_every_method_but_those_left_out_for_a_reason(stored):
    assert every_method.missing(stored) == []
    assert set(every_method.LEFT_OUT) < set(METHODS)


def test_each_method_learns_on_every_seed(stored):
    """No finished cell is at chance."""
    scores = {row["cell"]: float(row[every_method.MEASURE]) for row in stored.cells}
    assert len(scores) > 100
    assert min(scores.values()) > 1.5 * every_method.CHANCE


def test_the_page_has_the_table_of_the_stored_results(stored):
    text = (ROOT / "docs" / "methods.md").read_text("utf-8")
    assert page.fill(text, every_method.GRID, every_method.table(stored)) == text


def test_a_second_transfer_of_the_model_and_statistics_count_as_bytes(stored):
    table = every_method.table(stored)
    rows = {line.split(" | ")[0][2:]: line.rstrip(" |").split(" | ") for line in table.split("\n")}
    assert rows["FedAvg"][-2:] == ["1.00", "1.00"]
    assert rows["SCAFFOLD"][-1] == "2.00"
    assert float(rows["FedAvg+LDA head"][-1]) > 1.5
    assert float(rows["FedOpt-SCA"][-1]) < 1
