"""What tests count beside passing or failing: rounds that were lost, results that are wrong.

`make test-faults` adds the counts up over all tests of tests/faults.toml.
"""

from fedbb.runs.folder import RunFolder

ROUNDS, LOST_ROUNDS = "rounds", "lost rounds"
RESULTS, WRONG_RESULTS = "results", "wrong results"


class Tally:
    """Counts into pytest's report of a test, which keeps the counts also if the test fails."""

    def __init__(self, record):
        self.record = record

    def rounds(self, kept, expected):
        """Check that these round numbers are 1, 2, … up to the expected one."""
        lost = len(set(range(1, expected + 1)) - set(kept))
        self.record(ROUNDS, expected)
        self.record(LOST_ROUNDS, lost)
        assert list(kept) == list(range(1, expected + 1))

    def results(self, found, expected):
        """Check that each result, such as the digest of a model, is the expected one."""
        wrong = sum(one != expected for one in found)
        self.record(RESULTS, len(found))
        self.record(WRONG_RESULTS, wrong)
        assert found
        assert not wrong, f"{wrong} of {len(found)} results differ from {expected}"

    def run(self, summary, expected, path):
        """Check the model of a finished run, and that its folder holds all rounds."""
        self.results([summary["sha256"]], expected["sha256"])
        self.rounds([record["round"] for record in RunFolder(path).records()], expected["rounds"])
