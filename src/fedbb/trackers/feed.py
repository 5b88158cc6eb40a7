"""Handing a run's rounds to a tracker, each of them once and in order."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedbb.errors import RunError
from fedbb.recipes.reader import flatten, make_recipe
from fedbb.runs.folder import Record, RunFolder
from fedbb.trackers.base import TrackedRun, Tracker
from fedbb.trackers.measures import class_names, clean, measures, summary_measures

LONGEST_NAME = 48


class Feed:
    """Keeps one tracker level with one run folder, which is set up before the first record."""

    def __init__(self, tracker: Tracker, path: Path, *, is_new: bool = False) -> None:
        self.tracker = tracker
        self.folder = RunFolder(path)
        self.is_new = is_new
        self.classes: list[str] = []
        self.last: int | None = None

    def record(self, record: Record) -> None:
        """Hand over a finished round, after all those before it that the tracker lacks."""
        if self.last is None:
            self.catch_up()
        self._hand(record)

    def catch_up(self) -> int:
        """Hand over what the folder holds and the tracker lacks; return how many rounds it was."""
        if self.last is None:
            self.classes = class_names(self.folder.read_json("federation.json")["classes"])
            self.last = self.tracker.begin(describe(self.folder, is_new=self.is_new))
        return sum(self._hand(record) for record in self.folder.records())

    def end(self, *, is_finished: bool) -> None:
        """Close the run; a finished one is told with its summary."""
        if is_finished:
            self.catch_up()
            self.tracker.end(summary_measures(self.folder.read_json("summary.json")))
        elif self.last is not None:
            self.tracker.end(None)

    def _hand(self, record: Record) -> bool:
        assert self.last is not None
        number = int(record["round"])
        if number <= self.last:
            return False
        self.tracker.record(number, measures(record, self.classes))
        self.last = number
        return True


def export(tracker: Tracker, path: Path) -> int:
    """Bring a tracker level with a run folder, finished or not; return how many rounds it lacked.

    RunError names a folder that holds no run, and what the tracker could not take.
    """
    feed = Feed(tracker, path)
    if not feed.folder.is_run():
        raise RunError(f"{path} is no run folder: it has no recipe.json")
    try:
        handed = feed.catch_up()
        feed.end(is_finished=feed.folder.file("summary.json").exists())
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise RunError(f"{path} could not be tracked: {reason}") from error
    return handed


def describe(folder: RunFolder, *, is_new: bool = False) -> TrackedRun:
    """Return what a tracker is told of a run before its rounds."""
    recipe = make_recipe(folder.read_json("recipe.json"), f"recipe of {folder.path}")
    mark = hashlib.sha256(recipe.decisive.model_dump_json().encode()).hexdigest()[:8]
    name = folder.path.resolve().name
    identity = clean(name, LONGEST_NAME)
    if not identity.endswith(mark):
        identity = f"{identity}-{mark}".lstrip("-")
    return TrackedRun(name, identity, dict(flatten(recipe.model_dump(mode="json"))), is_new)
