"""The table of faults and invariants is whole, and its report counts what tests did."""

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from faults import KINDS, Outcomes, judge, read_table, summarize
from helpers.tally import Tally

TESTS = Path(__file__).parent
TABLE = read_table()


@pytest.mark.parametrize(("kind", "number"), KINDS.items())
def test_every_fault_and_invariant_has_a_test(kind, number):
    rows = {row: tests for row, tests in TABLE.items() if row[0] == kind}
    assert sorted(rows) == [(kind, place) for place in range(1, number + 1)]
    assert all(rows.values())


def test_every_test_of_the_table_exists():
    missing = []
    for name in {name for names in TABLE.values() for name in names}:
        path, function = name.split("::")
        found = (TESTS / path).exists() and {
            node.name
            for node in ast.parse((TESTS / path).read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef)
        }
        if not found or function not in found:
            missing.append(name)
    assert missing == []


def quick_tests(path):
    """Return the names of the tests of a file that are marked neither `slow` nor `flower`."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    held_back = ("mark.slow", "mark.flower")
    for node in body:
        is_mark = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        if is_mark and any(mark in ast.unparse(node.value) for mark in held_back):
            return set()
    return {
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef)
        and not any(
            ast.unparse(mark).endswith(held_back)
            for mark in node.decorator_list  # a variant that is marked leaves the others
        )
    }


def test_every_row_is_shown_without_slow_tests_and_real_nodes():
    paths = {name.split("::")[0] for names in TABLE.values() for name in names}
    quick = {path: quick_tests(TESTS / path) for path in paths}
    unseen = [
        row
        for row, names in TABLE.items()
        if not any(name.split("::")[1] in quick[name.split("::")[0]] for name in names)
    ]
    assert unseen == []


@pytest.mark.parametrize(
    ("ended", "verdict"),
    [
        ({"a": {"passed": 3}, "b": {"skipped": 1}}, "survived"),
        ({"a": {"passed": 3}, "b": {"passed": 1, "failed": 1}}, "failed"),
        ({"a": {"skipped": 1}}, "not run"),
        ({}, "not run"),
    ],
)
def test_a_fault_is_survived_if_a_test_passed_and_none_failed(ended, verdict):
    assert judge(["a", "b"], {name: Counter(each) for name, each in ended.items()}) == verdict


def keep_all(tally):
    tally.rounds([1, 2, 3], 3)
    tally.results(["x", "x"], "x")


def lose_one(tally):
    tally.rounds([1, 3], 3)


def get_one_wrong(tally):
    tally.results(["x", "y"], "x")


def test_lost_rounds_and_wrong_results_are_counted_from_the_tests():
    outcomes = Outcomes()
    for function in (keep_all, lose_one, get_one_wrong):
        counted, outcome = [], "passed"
        try:
            function(Tally(lambda key, value, into=counted: into.append((key, value))))
        except AssertionError:
            outcome = "failed"
        name = f"tests/a.py::{function.__name__}[x]"
        report = pytest.TestReport(
            name, ("a", 1, name), {}, outcome, None, "call", user_properties=counted
        )
        outcomes.pytest_runtest_logreport(report)
    table = {
        ("fault", 1): ["a.py::keep_all"],
        ("fault", 2): ["a.py::lose_one", "a.py::keep_all"],
        ("invariant", 1): ["a.py::get_one_wrong"],
        ("invariant", 2): ["a.py::elsewhere"],
    }
    assert summarize(table, outcomes.ended, outcomes.counted) == [
        "fault 2: failed",
        "invariant 1: failed",
        "invariant 2: not run",
        "survived 1/55, invariants 0/41, lost rounds 1 (of 6), wrong results 1 (of 4)",
    ]


def test_a_kept_outcome_is_counted_once_and_what_failed_is_run_again(tmp_path):
    path = tmp_path / "outcomes.jsonl"
    outcomes = Outcomes(path)
    for outcome in ("failed", "passed"):
        name = "tests/a.py::keep_all[x]"
        report = pytest.TestReport(
            name, ("a", 1, name), {}, outcome, None, "call", user_properties=[("rounds", 3)]
        )
        outcomes.pytest_runtest_logreport(report)
    again = Outcomes(path)
    assert len(path.read_text().splitlines()) == 2
    assert again.ended == {"a.py::keep_all": Counter(passed=1)}
    assert again.counted == {"rounds": 3}
    assert json.loads(path.read_text().splitlines()[0])["outcome"] == "failed"
