"""TensorBoard: an event file for each run, under FOLDER/tensorboard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedbb.trackers.registry import ROUND, TrackedRun

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardLog:
    """Writes scalars, and the recipe as a text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tensorboard"
        self.last = 0
        self._writer: SummaryWriter | None = None

    @property
    def writer(self) -> SummaryWriter:
        """The open event file."""
        assert self._writer is not None, "begin comes first"
        return self._writer

    def begin(self, run: TrackedRun) -> int:
        """Open an event file; readers drop what earlier ones say of the rounds still to come."""
        from torch.utils.tensorboard import SummaryWriter

        place = self.folder / run.identity
        self.last = 0 if run.is_new else last_round(place)
        purge = self.last + 1 if self.last else 0
        self._writer = SummaryWriter(str(place), purge_step=purge)
        if not self.last:
            self.writer.add_text("recipe", _listing(run.settings), 0)
        return self.last

    def record(self, number: int, measures: Mapping[str, float]) -> None:
        """Write the measures and see them to disk."""
        self._write(number, measures)
        self.last = number

    def end(self, summary: Mapping[str, float] | None) -> None:
        """Write the summary as a step after the last round, where a later one replaces it."""
        if summary is not None:
            self._write(self.last + 1, summary)
        self.writer.close()

    def _write(self, number: int, measures: Mapping[str, float]) -> None:
        for name, value in measures.items():
            self.writer.add_scalar(name, value, number)
        self.writer.flush()


def last_round(place: Path) -> int:
    """Return the last whole round in the event files of a folder, 0 for none."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    if not place.is_dir():
        return 0
    events = EventAccumulator(str(place), size_guidance={SCALARS: 1})
    events.Reload()
    if ROUND not in events.Tags()[SCALARS]:
        return 0
    return int(events.Scalars(ROUND)[-1].step)


def _listing(settings: Mapping[str, object]) -> str:
    """Return settings as Markdown that shows them as they are."""
    return "\n".join(f"    {key} = {value!r}" for key, value in settings.items())
