import csv
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.analysis.inspect import inspect
from fedbb.errors import RunError
from fedbb.report.inspection.files import toml_key, toml_value, write_tables


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_files_hold_the_figures_to_the_last_digit(tmp_path):
    found = inspect(
        [0, 0, 1, 1, 2, 0], ["x", "x", "y,z", "x", "y,z", "x"], classes=["a", 'b"', "c"]
    )
    names = [path.name for path in write_tables(found, tmp_path / "new")]
    assert names == ["classes.csv", "clients.csv", "counts.csv"]
    classes, clients, counts = (read(tmp_path / "new" / name) for name in names)
    assert [row["class"] for row in classes] == ["a", 'b"', "c"]
    for column, values in (
        ("alpha_positive", found.cases.alpha_positive),
        ("raw_positive", found.cases.raw[0]),
        ("classed_positive", found.cases.classed[0]),
        ("share", found.classes.shares),
    ):
        assert np.array_equal([float(row[column]) for row in classes], values)
    assert [row["client"] for row in clients] == ["x", "y,z"]
    for reading, values in found.clients.weights.items():
        assert np.array_equal([float(row[f"weight_{reading}"]) for row in clients], values)
    assert [[int(row[name]) for name in ("a", 'b"', "c")] for row in counts] == [
        [3, 1, 0],
        [0, 1, 1],
    ]


def test_a_folder_that_cannot_be_is_an_error_of_ours(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write_tables(inspect([0, 1]), tmp_path / "file" / "folder")


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
