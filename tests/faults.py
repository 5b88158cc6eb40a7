"""Run the tests of tests/faults.toml, and count faults survived and invariants that hold.

    python tests/faults.py [--all] [--workers N] [--keep FILE] [--only TEXT]

Without --all, tests marked `slow` or `flower` are left out; what only they show is listed as not
run. Lost rounds and wrong results are the sums of what the tests counted (helpers/tally.py).
With --keep, outcomes are added to a file as tests end, and what passed is not run again: a long
run can be interrupted, or go in parts with --only. The file holds for one state of the code.
"""

import argparse
import json
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TABLE = TESTS / "faults.toml"
KINDS = {"fault": 55, "invariant": 41}
"""How many faults and invariants there are."""


def read_table(path=TABLE):
    """Return the names of the tests by kind and number."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        (kind, int(number)): row["tests"]
        for kind, rows in table.items()
        for number, row in rows.items()
    }


class Outcomes:
    """A plugin of pytest that keeps how each test ended, and what it counted.

    Args:
        path: A file of one line per test that was run, which is read first and then added to.
    """

    def __init__(self, path=None):
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        # A test that was run again counts as it ended last.
        self.tests = {test["name"]: test for test in map(json.loads, lines)}

    def pytest_collection_modifyitems(self, config, items):
        """Leave out what passed before."""
        done = {name for name, test in self.tests.items() if test["outcome"] == "passed"}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
        items[:] = [item for item in items if item.nodeid not in done]

    def pytest_runtest_logreport(self, report):
        """Note the outcome of a test; its set-up and its end matter only if they fail."""
        if report.when != "call" and report.outcome == "passed":
            return
        counted = report.user_properties if report.when == "call" else []
        test = {"name": report.nodeid, "outcome": report.outcome, "counted": counted}
        self.tests[report.nodeid] = test
        if self.path:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(test) + "\n")

    @property
    def ended(self):
        """How often the variants of each function ended in which way."""
        found = defaultdict(Counter)
        for name, test in self.tests.items():
            found[name.split("[")[0].removeprefix("tests/")][test["outcome"]] += 1
        return found

    @property
    def counted(self):
        """The sums of what the tests counted."""
        found = Counter()
        for test in self.tests.values():
            for key, value in test["counted"]:
                found[key] += value
        return found


def judge(tests, ended):
    """Return "survived" if a test of a row passed and none failed, else "failed" or "not run"."""
    outcomes = sum((ended.get(test, Counter()) for test in tests), Counter())
    if outcomes["failed"]:
        return "failed"
    return "survived" if outcomes["passed"] else "not run"


def summarize(table, ended, counted):
    """Return the lines of the report; the last one is the summary."""
    found = {row: judge(tests, ended) for row, tests in table.items()}
    lines = [
        f"{kind} {number}: {verdict}"
        for (kind, number), verdict in sorted(found.items())
        if verdict != "survived"
    ]
    parts = []
    for kind, word in (("fault", "survived"), ("invariant", "invariants")):
        held = sum(verdict == "survived" for row, verdict in found.items() if row[0] == kind)
        parts.append(f"{word} {held}/{KINDS[kind]}")
    for total, bad in (("rounds", "lost rounds"), ("results", "wrong results")):
        parts.append(f"{bad} {counted[bad]} (of {counted[total]:,})")
    return [*lines, ", ".join(parts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="also tests marked slow or flower")
    parser.add_argument("--workers", default="0", help="processes of pytest-xdist")
    parser.add_argument("--keep", type=Path, help="file of outcomes; what passed is not repeated")
    parser.add_argument("--only", default="", help="run only tests whose name contains this")
    options = parser.parse_args()
    table, outcomes = read_table(), Outcomes(options.keep)
    names = sorted({test for tests in table.values() for test in tests if options.only in test})
    marks = "slow or not slow" if options.all else "not slow and not flower"
    words = ["-n", options.workers, "-m", marks, "--timeout", "1800" if options.all else "300"]
    code = pytest.main([*words, *(f"{TESTS}/{name}" for name in names)], plugins=[outcomes])
    print("\n".join(summarize(table, outcomes.ended, outcomes.counted)))
    sys.exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED and outcomes.tests else code)


if __name__ == "__main__":
    main()
