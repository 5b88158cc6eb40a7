"""The runs of a federation: their configuration, their status, and one that is monitored."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from fedbb.errors import RunError
from fedbb.flower.admin.control import Control, Run, dismissed
from fedbb.flower.admin.paths import FederationFolder, Scalar
from fedbb.recipes.spec import Recipe
from fedbb.runs.folder import Record, RunFolder

POLL_SECONDS = 0.5
"""Seconds between two requests for the status of a run."""

GONE_SECONDS = 120.0
"""Seconds without a response after which the server counts as gone; a restart takes less."""

PREFIX = "fedbb: "
IN_RECORDS = re.compile(r"round \d+ of |round \d+: client \d+ is left out|all rounds are done")


def run_config(recipe: Recipe, folder: Path, *, resume: bool, score: str) -> dict[str, Scalar]:
    """Return the run config: the recipe as JSON, the folder at the server, and who scores."""
    return {
        "recipe": located(recipe).model_dump_json(),
        "folder": str(folder.resolve()),
        "resume": resume,
        "score": score,
    }


def located(recipe: Recipe) -> Recipe:
    """Return the recipe with absolute paths in place of those that exist relative to here."""
    data = recipe.data
    partition = replace(data.partition, path=_absolute(data.partition.path))
    public = data.public
    if public is not None:
        public = public.model_copy(update={"path": _absolute(public.path)})
    changes = {"path": _absolute(data.path), "partition": partition, "public": public}
    data = data.model_copy(update=changes)
    return recipe.model_copy(update={"data": data})


class RunMonitor:
    """A run in progress: its records as they are committed, its log lines, and how it ended."""

    def __init__(self, control: Control, run: int, folder: Path) -> None:
        self.control = control
        self.run = run
        self.folder = RunFolder(folder)
        self.ending: Run | None = None
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._reader = Thread(target=self._read_log, daemon=True)

    def __iter__(self) -> Iterator[Record | str]:
        """Yield each round that this run commits, and other log lines, until the run ends.

        Raises:
            RunError: The server has not responded for GONE_SECONDS.
        """
        self._reader.start()
        seen, silence = self._committed(), _Silence()
        while self.ending is None:
            state = self._status(silence)
            yield from silence.notices()
            if state is not None and state.is_over:
                self._reader.join(POLL_SECONDS)
            yield from self._log_lines()
            for record in self._new(seen):
                seen = record["round"]
                yield record
            if state is not None and state.is_over:
                self.ending = state
            else:
                time.sleep(POLL_SECONDS)

    def stop(self, seconds: float = 10.0) -> None:
        """Stop the run, and wait until its server app has let go of the run folder.

        Flower reports the end of a run at once, while the app may still be setting up the folder
        or saving a round.
        """
        try:
            self.control.stop(self.run)
        except RunError:
            if not self.control.run(self.run).is_over:  # a moment ago it may not have been
                raise
        limit = time.monotonic() + seconds
        while self._goes_on() and time.monotonic() < limit:
            time.sleep(POLL_SECONDS)

    def _goes_on(self) -> bool:
        return self.folder.is_held() or not self.control.run(self.run).is_over

    def _status(self, silence: _Silence) -> Run | None:
        """Return the status of the run, None while the server does not respond."""
        try:
            state = self.control.run(self.run)
        except RunError as error:
            silence.note(error)
            return None
        silence.end()
        return state

    def _committed(self) -> int:
        records = self.folder.records()
        return int(records[-1]["round"]) if records else 0

    def _new(self, seen: int) -> list[Record]:
        # A round that was interrupted is repeated under the same number.
        return [record for record in self.folder.records() if record["round"] > seen]

    def _log_lines(self) -> Iterator[str]:
        while not self._lines.empty():
            yield self._lines.get()

    def _read_log(self) -> None:
        """Read the server's log without the lines that repeat the records."""
        try:
            for text, _ in self.control.log(self.run):
                for line in text.splitlines():
                    message = line.removeprefix(PREFIX)
                    if message != line and not IN_RECORDS.match(message):
                        self._lines.put(message)
        except RunError:
            return  # the rest of the log is lost; the records are on disk


class _Silence:
    """How long the server has not responded, and what is said of it."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._notices: list[str] = []

    def note(self, error: RunError) -> None:
        """Note that a request failed; RunError once requests have failed for too long."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._notices.append(f"{error}; waiting up to {GONE_SECONDS:.0f} s for it")
        elif now - self._since > GONE_SECONDS:
            raise RunError(
                f"{error}; it has not responded for {GONE_SECONDS:.0f} s. Finished rounds are "
                "saved: start the server again and continue with fedbb flower run --resume"
            ) from error

    def end(self) -> None:
        """Note that a request succeeded."""
        if self._since is not None:
            self._notices.append("the server responds again")
        self._since = None

    def notices(self) -> Iterator[str]:
        """Yield what was not yet said."""
        while self._notices:
            yield self._notices.pop(0)


def _absolute(path: str | None) -> str | None:
    return str(Path(path).resolve()) if path is not None and Path(path).exists() else path


def describe(folder: FederationFolder) -> dict[str, Any]:
    """Return the status of a federation, from its server, as JSON values."""
    folder.check()
    with Control(folder.listening(), folder.ca) as control:
        nodes, runs, gone = control.nodes(), control.runs(), dismissed(folder, control)
    known = {node.name for node in nodes}
    others = {
        site.path.name: "dismissed" if site.path.name in gone else "not registered"
        for site in folder.sites()
        if site.path.name not in known
    }
    return {
        "server": control.address,
        "sites": [
            *({"site": node.name, "status": node.status, "since": node.since} for node in nodes),
            *({"site": name, "status": why, "since": ""} for name, why in others.items()),
        ],
        "runs": [describe_run(run) for run in runs],
    }


def describe_run(run: Run) -> dict[str, Any]:
    """Return the status of a run, with the rounds in its folder on this machine."""
    folder = str(run.config.get("folder", ""))
    return {
        "run": str(run.identity),
        "status": run.status,
        "details": run.details,
        "folder": folder,
        "done": finished_rounds(Path(folder)) if folder else 0,
        "rounds": _wanted_rounds(run),
        "begun": run.begun,
        "ended": run.ended,
        "bytes_to_sites": run.sent,
        "bytes_from_sites": run.received,
    }


def finished_rounds(path: Path) -> int:
    """Return the number of rounds in a run folder, 0 if there is none."""
    try:
        return len(RunFolder(path).records())
    except (RunError, OSError):
        return 0


def _wanted_rounds(run: Run) -> int | None:
    try:
        recipe = json.loads(str(run.config.get("recipe", "")))
        return int(recipe["rounds"]["number"])
    except (ValueError, KeyError, TypeError):
        return None
