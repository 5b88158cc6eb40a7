"""A tracker that keeps all its calls, and a run folder that grows as a run's does."""

import json

from helpers.run_builder import Sketch, build

HOSTILE = (
    "plain",
    "<script>alert(1)</script>",
    "a/b",
    "a b",
    "肺炎",
    "..",
    "'; drop",
    "",
    "é",
    "10",
)


class Memory:
    """Keeps all calls."""

    def __init__(self, held=0):
        self.held = held
        self.run = None
        self.rounds = []
        self.measures = {}
        self.endings = []

    def begin(self, run):
        self.run = run
        return self.held

    def record(self, number, measures):
        self.rounds.append(number)
        self.measures = dict(measures)

    def end(self, summary):
        self.endings.append(summary)


class Broken(Memory):
    """Fails at the third round."""

    def record(self, number, measures):
        super().record(number, measures)
        if number == 3:
            raise OSError("the disk is full")


def finished(path, rounds=4, **changes):
    """Build a finished run of these rounds."""
    return build(path, Sketch(rounds=rounds, classes=HOSTILE, **changes))


def cut(path, rounds):
    """Make a finished run one that stopped after some rounds, and return what was cut off."""
    lines = (path / "rounds.jsonl").read_text().splitlines(keepends=True)
    summary = (path / "summary.json").read_text()
    (path / "rounds.jsonl").write_text("".join(lines[:rounds]))
    (path / "summary.json").unlink()
    return lines[rounds:], summary


def mend(path, rest):
    """Put back what `cut` returned."""
    lines, summary = rest
    with (path / "rounds.jsonl").open("a") as file:
        file.writelines(lines)
    (path / "summary.json").write_text(summary)


def records(path):
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
