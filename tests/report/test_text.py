"""Tables of words, and their Markdown."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.report.spread import spread_of
from fedbb.report.tables import Difference, Row
from fedbb.report.text import (
    Table,
    best_table,
    difference_table,
    escape,
    final_table,
    markdown_table,
)


def row(method, metric, final, chosen_on="validation"):
    best = [value + 0.05 for value in final]
    seeds = tuple(range(len(final)))
    return Row("digits", method, metric, spread_of(final), spread_of(best), chosen_on, seeds)


ROWS = [
    row("FedAvg", "accuracy", [0.50, 0.52]),
    row("FedAvg", "f1", [0.40, 0.42]),
    row("FedBB", "accuracy", [0.60, 0.62]),
    row("FedBB", "f1", [0.61, 0.63]),
]


def test_a_score_table_has_a_line_a_method_and_a_column_a_metric():
    table = final_table(ROWS)
    assert table.head == ("method", "accuracy", "macro F1", "seeds")
    assert table.rows == (
        ("FedAvg", "51.0 ± 1.4", "41.0 ± 1.4", "2"),
        ("FedBB", "61.0 ± 1.4", "62.0 ± 1.4", "2"),
    )


@pytest.mark.parametrize(("chosen_on", "is_rosy"), [("validation", False), ("test", True)])
def test_best_rounds_say_what_they_were_chosen_on(chosen_on, is_rosy):
    table = best_table([row("FedAvg", "accuracy", [0.5], chosen_on)])
    assert f"chosen on {chosen_on} data" in table.caption
    assert ("too rosy" in table.caption) is is_rosy
    assert table.rows == (("FedAvg", "55.0", "1"),)


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([0.02, 0.03], "+2.5 ± 0.7, ahead (2/2)"),
        ([-0.02, -0.03], "−2.5 ± 0.7, behind (0/2)"),
        ([0.02, -0.03], "−0.50 ± 3.54, tie (1/2)"),
        ([0.02], "+2.0, unsure (1/1)"),
        ([], "not comparable"),
    ],
)
def test_a_difference_is_given_with_its_reading(gaps, expected):
    ahead, behind = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    item = Difference("d", "FedBB", "FedAvg", "f1", spread_of(gaps), ahead, behind, False)
    assert difference_table([item]).rows == (("FedBB − FedAvg", expected),)


def test_markdown_lines_up_captions_heads_and_cells():
    table = Table("Scores", ("method", "f1"), (("FedAvg", "1.0"), ("a|b", "<2>")))
    assert markdown_table(table) == (
        "Scores:\n\n| method | f1 |\n| :-- | --: |\n| FedAvg | 1.0 |\n| a\\|b | \\<2\\> |\n"
    )


@given(st.text())
def test_no_text_can_break_out_of_its_markdown_cell(text):
    shown = escape(text)
    assert "\n" not in shown
    assert re.search(r"(?<!\\)(\\\\)*[|<]", shown) is None
