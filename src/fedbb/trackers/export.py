"""A run's rounds as measures with flat names, sent to trackers during the run or later."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedbb.errors import RecipeError, RunError
from fedbb.recipes.reader import flatten
from fedbb.runs.folder import Record, RunFolder
from fedbb.runs.metadata import read_federation, read_run_recipe
from fedbb.trackers.registry import FOLDER, ROUND, TrackedRun, Tracker, make_tracker

LONGEST_NAME = 48


class Feed:
    """Sends the rounds of a run folder, which is set up before the first record, to a tracker."""

    def __init__(self, tracker: Tracker, path: Path, *, is_new: bool = False) -> None:
        self.tracker = tracker
        self.folder = RunFolder(path)
        self.is_new = is_new
        self.classes: list[str] = []
        self.last: int | None = None

    def record(self, record: Record) -> None:
        """Send a finished round, after all those before it that the tracker lacks."""
        if self.last is None:
            self.catch_up()
        self._send(record)

    def catch_up(self) -> int:
        """Send the rounds that the tracker lacks, and return their number."""
        if self.last is None:
            self.classes = class_names(read_federation(self.folder).classes)
            self.last = self.tracker.begin(describe(self.folder, is_new=self.is_new))
        return sum(self._send(record) for record in self.folder.records())

    def end(self, *, is_finished: bool) -> None:
        """Close the run; a finished one with its summary."""
        if is_finished:
            self.catch_up()
            self.tracker.end(summary_measures(self.folder.read_json("summary.json")))
        elif self.last is not None:
            self.tracker.end(None)

    def _send(self, record: Record) -> bool:
        assert self.last is not None
        number = int(record["round"])
        if number <= self.last:
            return False
        self.tracker.record(number, measures(record, self.classes))
        self.last = number
        return True


def export(tracker: Tracker, path: Path) -> int:
    """Send the rounds of a run folder that a tracker lacks, and return their number.

    Args:
        tracker: The tracker to send them to.
        path: The run folder. The run may be unfinished.

    Returns:
        Number of rounds that were sent.

    Raises:
        RunError: The folder holds no run, or the tracker failed.
    """
    feed = Feed(tracker, path)
    feed.folder.check_run()
    try:
        sent = feed.catch_up()
        feed.end(is_finished=feed.folder.file("summary.json").exists())
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise RunError(f"{path} could not be tracked: {reason}") from error
    return sent


def describe(folder: RunFolder, *, is_new: bool = False) -> TrackedRun:
    """Return how a tracker knows a run."""
    recipe = read_run_recipe(folder)
    mark = hashlib.sha256(recipe.decisive.model_dump_json().encode()).hexdigest()[:8]
    name = folder.path.resolve().name
    identity = clean(name, LONGEST_NAME)
    if not identity.endswith(mark):
        identity = f"{identity}-{mark}".lstrip("-")
    return TrackedRun(name, identity, dict(flatten(recipe.model_dump(mode="json"))), is_new)


LONGEST = 60

Measure = tuple[str, float]


def measures(record: Mapping[str, Any], classes: Sequence[str]) -> dict[str, float]:
    """Return a round's defined figures by name; `classes` are names made by `class_names`.

    The names are `test/f1`, `test/recall/<class>`, `clients/weight/<client>`, `train/loss` and so
    on; `round` comes last.
    """
    found = [
        *_scores(record["scores"], classes),
        *_clients(record["clients"]),
        *((f"seconds/{part}", value) for part, value in record.get("seconds", {}).items()),
        (ROUND, record["round"]),
    ]
    return _defined(found)


def summary_measures(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return round and macro figures of the best and the final round, as in `best/test/f1`."""
    found: list[Measure] = []
    for which in ("best", "final"):
        found.append((f"{which}/round", summary[which]["round"]))
        for part, scores in summary[which]["scores"].items():
            macro = scores["macro"]
            found += [(f"{which}/{part}/{name}", value) for name, value in macro.items()]
    return _defined(found)


def class_names(classes: Iterable[str]) -> list[str]:
    """Return names of letters, digits, `-` and `_`, no two alike, for classes of any name.

    >>> class_names(["cat", "Pleural Thickening", "a/b", "a.b", "…"])
    ['cat', 'Pleural_Thickening', 'a_b', 'a_b-3', 'class-4']
    """
    names: list[str] = []
    for number, original in enumerate(classes):
        name = clean(original) or f"class-{number}"
        while name in names:
            name = f"{name}-{number}"
        names.append(name)
    return names


def clean(text: str, longest: int = LONGEST) -> str:
    """Return text cut to what every tracker takes as a name; empty where nothing can be kept."""
    # Letters lose their accents rather than become a mere `_`.
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9-]+", "_", plain).strip("_")[:longest]


def _scores(scores: Mapping[str, Any], classes: Sequence[str]) -> Iterator[Measure]:
    for part, found in scores.items():
        for name, value in found["macro"].items():
            yield f"{part}/{name}", value
        for name, vector in found["per_class"].items():
            for which, value in zip(classes, vector, strict=True):
                yield f"{part}/{name}/{which}", value


def _clients(clients: Sequence[Mapping[str, Any]]) -> Iterator[Measure]:
    # Where aggregation is secure, the server knows only who took part.
    known = [client for client in clients if client.get("train_loss") is not None]
    for client in known:
        for name in ("weight", "steps", "train_loss"):
            yield f"clients/{name}/{client['client']}", client[name]
    if len(known) == len(clients):
        yield "train/loss", sum(client["weight"] * client["train_loss"] for client in known)


def _defined(found: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    return {
        name: float(value) for name, value in found if value is not None and math.isfinite(value)
    }


Tell = Callable[[str], None]


class Trackers:
    """The trackers of one run by name; those that failed are dropped."""

    def __init__(self, feeds: dict[str, Feed], tell: Tell) -> None:
        self.feeds = feeds
        self.tell = tell

    def record(self, record: Record) -> None:
        """Send a finished round to every tracker."""
        self._each(lambda feed: feed.record(record))

    def end(self, *, is_finished: bool) -> None:
        """Close the run in every tracker."""
        self._each(lambda feed: feed.end(is_finished=is_finished))

    def _each(self, step: Callable[[Feed], None]) -> None:
        for name, feed in list(self.feeds.items()):
            try:
                step(feed)
            except Exception as error:
                del self.feeds[name]
                reason = " ".join(str(error).split()) or type(error).__name__
                self.tell(
                    f"warning: {name} stopped tracking, the run continues: {reason[:300]}; "
                    f"later: fedbb track {feed.folder.path} --to {name}"
                )


@contextmanager
def tracking(wanted: Sequence[str], path: Path, tell: Tell) -> Iterator[Trackers]:
    """Yield the trackers, as "NAME" or "NAME=FOLDER", of a run that is to begin or to go on.

    They are closed with the run; it counts as finished if the block ends without an error.
    """
    is_new = not RunFolder(path).is_run()
    feeds = {name: Feed(make_tracker(name), path, is_new=is_new) for name in wanted}
    for name in wanted:
        _check_place(name, path)
    trackers = Trackers(feeds, tell)
    is_finished = False
    try:
        yield trackers
        is_finished = True
    finally:
        trackers.end(is_finished=is_finished)


def _check_place(wanted: str, path: Path) -> None:
    """Refuse to write into the run's folder, which is the run's alone."""
    place = Path(wanted.partition("=")[2] or FOLDER).resolve()
    if place.is_relative_to(path.resolve()):
        raise RecipeError(f"tracker {wanted!r} would write into the run folder {path}")
