import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import RecipeError
from fedbb.recipes.grid.layers import merge, put

names = st.text("abc", min_size=1, max_size=2)
tables = st.dictionaries(
    names,
    st.recursive(st.integers(), lambda inner: st.dictionaries(names, inner, max_size=3)),
    max_size=4,
)


@given(tables)
def test_nothing_laid_over_or_under_changes_nothing(values):
    assert merge(values, {}) == values == merge({}, values)


@given(tables, tables, tables)
def test_laying_over_in_two_steps_or_at_once_is_the_same_where_tables_stay_tables(a, b, c):
    if all(kinds_agree(x, y) for x, y in ((a, b), (b, c), (a, c))):
        assert merge(merge(a, b), c) == merge(a, merge(b, c))


def kinds_agree(one, other):
    return all(
        isinstance(one[key], dict) == isinstance(other[key], dict)
        and (not isinstance(one[key], dict) or kinds_agree(one[key], other[key]))
        for key in one.keys() & other.keys()
    )


@given(tables, tables)
def test_neither_side_is_changed(under, over):
    before = copy.deepcopy((under, over))
    merged = merge(under, over)
    for value in merged.values():
        if isinstance(value, dict):
            value["new"] = 1
    assert (under, over) == before


def test_a_value_is_put_in_by_its_dotted_name_and_tables_are_made_on_the_way():
    assert put({"a": {"b": 1}}, {"a.c": 2, "d.e": 3}) == {"a": {"b": 1, "c": 2}, "d": {"e": 3}}


def test_a_table_that_is_put_in_replaces_the_one_before():
    assert put({"data": {"options": {"size": 8}}}, {"data.options": {}}) == {
        "data": {"options": {}}
    }


def test_a_value_is_no_table_to_put_into():
    with pytest.raises(RecipeError, match=r"a\.b\.c cannot be set: b is a value"):
        put({"a": {"b": 1}}, {"a.b.c": 2})
