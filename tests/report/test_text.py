"""Tables of words, and their Markdown."""

import re

from hypothesis import given
from hypothesis import strategies as st

from fedbb.report.text import Table, escape, markdown_table


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
