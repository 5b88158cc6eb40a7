"""The page on imbalance shows what its script makes; and the real tables, if they are there."""

import importlib.util
import os
import time
from pathlib import Path

import numpy as np
import pytest

from fedbb.analysis.inspect import ClientAssignment, examine
from fedbb.analysis.label_files import Layout, read_label_table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "imbalance.md").read_text("utf-8")


@pytest.fixture(scope="module")
def script():
    path = ROOT / "examples" / "imbalance" / "real_cases.py"
    spec = importlib.util.spec_from_file_location("real_cases", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def given(name):
    path = os.environ.get(name)
    if path is None:
        pytest.skip(f"{name} names no label table")
    return Path(path)


def test_the_page_has_the_table_on_long_tails(script):
    assert script.long_tail() in PAGE


@pytest.mark.slow
def test_the_page_has_the_rows_of_the_advice(script):
    rows = script.advice(None, None).splitlines()
    assert len(rows) == 2 + len(script.PAPER)
    assert all(row in PAGE for row in rows)


def test_the_page_has_the_table_of_chest_xray14(script):
    assert script.nih(given("FEDBB_NIH_LABELS")) in PAGE


def test_the_page_has_the_tables_of_chexpert(script):
    assert script.chexpert(given("FEDBB_CHEXPERT_LABELS")) in PAGE


def test_tables_are_put_between_their_marks_and_nowhere_else(script, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- one -->\nold\n<!-- end -->\nb\n<!-- two -->\n<!-- end -->\n")
    script.put(page, "one", "new\n")
    expected = "a\n<!-- one -->\nnew\n<!-- end -->\nb\n<!-- two -->\n<!-- end -->\n"
    assert page.read_text() == expected


@pytest.mark.slow
def test_a_million_rows_take_less_than_ten_seconds(tmp_path):
    rng = np.random.default_rng(0)
    kinds = [",".join(map(str, row)) for row in rng.integers(0, 2, (500, 14))]
    chosen = rng.integers(0, 500, 1_000_000)
    path = tmp_path / "labels.csv"
    with path.open("w") as file:
        file.write("image,site," + ",".join(f"finding {place}" for place in range(14)) + "\n")
        file.writelines(f"{n}.png,site {n % 20},{kinds[k]}\n" for n, k in enumerate(chosen))
    start = time.process_time()
    table = read_label_table(path, Layout(clients="site"))
    found = examine(table.labels, ClientAssignment(table.clients, table.owners), title="many")
    assert time.process_time() - start < 10
    assert found.samples == 1_000_000
