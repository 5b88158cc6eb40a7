"""Text from strangers stays on one line, shows only visible characters and has a bounded length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb._util.text import LIMIT, quote, shorten

anything = st.text() | st.integers() | st.floats() | st.lists(st.text()) | st.binary()


@given(anything)
def test_quoted_text_is_one_visible_line_of_bounded_length(value):
    for told in (quote(value), shorten(value)):
        assert len(told) <= LIMIT
        assert told == "" or told.isprintable()


@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=LIMIT))
def test_short_visible_text_is_unchanged(text):
    assert shorten(text) == text


def test_an_endless_integer_is_described():
    assert quote(-(10**5000)) == "an integer of more than 30 digits"
    assert quote(12) == "12"


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_the_limit_holds_and_the_cut_is_marked(limit):
    assert len(shorten("word " * 10, limit)) == limit
    assert shorten("word " * 10, limit).endswith("…")


def test_control_characters_do_not_reach_a_terminal():
    assert shorten("red\x1b[31m\x07") == "red?[31m?"
