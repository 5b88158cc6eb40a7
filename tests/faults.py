"""Run the tests of tests/faults.toml, and count faults survived and invariants that hold.

    python tests/faults.py [--all] [--workers N]

Without --all, tests marked `slow` or `flower` are left out; what only they show is listed as not
run. Lost rounds and wrong results are the sums of what the tests counted (helpers/tally.py).
"""

import argparse
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
    """A plugin of pytest that keeps how each test ended, and what it counted."""

    def __init__(self):
        self.ended = defaultdict(Counter)
        self.counted = Counter()

    def pytest_runtest_logreport(self, report):
        """Note the outcome of a test; its set-up and its end matter only if they fail."""
        name = report.nodeid.split("[")[0].removeprefix("tests/")
        if report.when == "call" or report.outcome != "passed":
            self.ended[name][report.outcome] += 1
        if report.when == "call":
            for key, value in report.user_properties:
                self.counted[key] += value


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
    options = parser.parse_args()
    table, outcomes = read_table(), Outcomes()
    names = sorted({test for tests in table.values() for test in tests})
    marks = "slow or not slow" if options.all else "not slow and not flower"
    words = ["-n", options.workers, "-m", marks, "--timeout", "1800" if options.all else "300"]
    code = pytest.main([*words, *(f"{TESTS}/{name}" for name in names)], plugins=[outcomes])
    print("\n".join(summarize(table, outcomes.ended, outcomes.counted)))
    sys.exit(code)


if __name__ == "__main__":
    main()
