"""How a table's scales and printed numbers are found, on a small table made here."""

import pytest

from fedbb.errors import RecipeError
from fedbb.paper import tables as paper
from fedbb.paper.tables import Printed, paper_grid, printed
from helpers.small_grid import write, write_grid


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for inner in ("scales/smoke", "scales/reduced", "numbers"):
        (tmp_path / inner).mkdir(parents=True)
    write_grid(tmp_path, "rates.toml")
    monkeypatch.setattr(paper, "_folder", lambda: tmp_path)
    return tmp_path


def test_the_tables_are_the_files(folder):
    assert paper.paper_tables() == ["rates"]


def test_the_full_scale_is_the_table_itself(folder):
    assert {cell.recipe.rounds.number for cell in paper_grid("rates", "full").cells} == {3}


def test_what_all_tables_share_lies_under_what_the_table_says(folder):
    write(folder / "scales/smoke/all.toml", "recipe = { rounds.number = 1, local.epochs = 2 }")
    write(folder / "scales/smoke/rates.toml", 'note = "short"\nrecipe = { local.epochs = 3 }')
    grid = paper_grid("rates", "smoke", seeds=[5], settings=["local.batch_size=4"])
    assert grid.notes == ("short",)
    for cell in grid.cells:
        local = cell.recipe.local
        assert (cell.recipe.rounds.number, local.epochs, local.batch_size) == (1, 3, 4)
        assert cell.seed == 5


@pytest.mark.parametrize(
    ("table", "scale", "message"),
    [
        ("rats", "full", "table 'rats' is unknown; did you mean rates?"),
        ("rates", "smok", "scale 'smok' is unknown; did you mean smoke?"),
        ("rates", "reduced", "table rates has no scale reduced"),
    ],
)
def test_an_unknown_table_or_scale_is_refused(folder, table, scale, message):
    with pytest.raises(RecipeError) as caught:
        paper_grid(table, scale)
    assert message in str(caught.value)


def test_printed_numbers_are_read_as_printed(folder):
    text = """
    [[number]]
    at = { method = "FedBB", rate = "η = 0.1" }
    metric = "accuracy"
    mean = 71.23
    spread = 0.45
    [[number]]
    at = { method = "FedAvg", rate = "η = 0.1" }
    metric = "accuracy"
    mean = 70
    note = "unclear in print"
    """
    write(folder / "numbers/rates.toml", text)
    assert printed("rates") == [
        Printed({"method": "FedBB", "rate": "η = 0.1"}, "accuracy", 71.23, 0.45),
        Printed(
            {"method": "FedAvg", "rate": "η = 0.1"}, "accuracy", 70.0, None, "unclear in print"
        ),
    ]


def test_a_table_without_printed_numbers_has_none(folder):
    assert printed("rates") == []


def test_a_number_at_a_place_the_table_does_not_have_is_refused(folder):
    number = 'at = { method = "FedBV" }\nmetric = "accuracy"\nmean = 1'
    write(folder / "numbers/rates.toml", f"[[number]]\n{number}")
    with pytest.raises(RecipeError, match=r"rates\.toml: axis method has no label 'FedBV'"):
        printed("rates")
