import tomllib

from hypothesis import given
from hypothesis import strategies as st

from fedbb.report.inspection.fragment import toml_key, toml_value

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
