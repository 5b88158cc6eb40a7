"""Trackers of a run in progress: a tracker that fails is dropped with one warning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedbb.errors import RecipeError
from fedbb.runs.folder import Record, RunFolder
from fedbb.trackers.export import Feed
from fedbb.trackers.registry import FOLDER, make_tracker

Tell = Callable[[str], None]


class Trackers:
    """The trackers of one run by name; those that failed are dropped."""

    def __init__(self, feeds: dict[str, Feed], tell: Tell) -> None:
        self.feeds = feeds
        self.tell = tell

    def record(self, record: Record) -> None:
        """Hand a finished round to every tracker."""
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
