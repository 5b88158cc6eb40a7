import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb._util.toml import to_toml, toml_key, toml_value

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
)


@given(texts, values)
def test_whatever_is_written_reads_back_the_same(key, value):
    assert tomllib.loads(f"{toml_key(key)} = {toml_value(value)}") == {key: value}


@given(st.dictionaries(texts, values | st.none()))
def test_tables_read_back_without_what_has_no_value(table):
    expected = {key: value for key, value in table.items() if value is not None}
    assert tomllib.loads(to_toml(table)) == expected


def test_inner_tables_without_values_are_empty():
    assert tomllib.loads(to_toml({"a": {"b": {"c": None}, "d": {}}})) == {"a": {"b": {}, "d": {}}}


def test_infinite_numbers_are_refused():
    with pytest.raises(ValueError, match="holds no inf"):
        to_toml({"a": float("inf")})
