"""The screen and the files of an inspection."""

import csv
import io
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedbb.analysis.inspect import inspect
from fedbb.errors import RunError
from fedbb.partition.registry import Rule
from fedbb.report.inspection import print_summary, toml_key, toml_value, write_tables


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


def shown(found, width=80):
    target = io.StringIO()
    print_summary(found, Console(file=target, width=width))
    return target.getvalue()


def many(task):
    rng = np.random.default_rng(2)
    if task == "multiclass":
        labels = rng.choice(200, 20_000, p=np.arange(1, 201) / 20_100)
        return inspect(labels, Rule("label-skew", 100, 0.1, min_samples=1))
    marks = (rng.random((5000, 40)) < np.geomspace(0.5, 0.001, 40)).astype(int)
    names = [f"a finding of a long name, {number}" for number in range(40)]
    owners = np.minimum(rng.geometric(0.2, 5000), 40)
    return inspect(marks, owners, classes=names, patients=np.arange(5000) % 700)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_the_summary_of_many_classes_and_clients_fits_one_screen(task):
    lines = shown(many(task)).splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) <= 80
    assert not any("…" in line.split("  ")[-1] and "more" not in line for line in lines[3:6])


def test_the_summary_tells_each_level_the_warnings_and_the_advice():
    text = " ".join(shown(many("multilabel")).split())
    for words in ("label sets seen", "Gini", "CBR", "share-std", "patients are on", "advice beta"):
        assert words in text
    assert "32 more" in text


def test_one_client_is_not_compared():
    assert "FedAvg" not in shown(inspect([0, 0, 1]))


def test_names_are_shown_as_they_are():
    assert "[red]x[/red]" in shown(inspect([0, 0, 1], classes=["[red]x[/red]", "y"]))
