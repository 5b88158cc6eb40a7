"""Starting a recipe on a federation and following it, round by round, from its run folder."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from fedbb.errors import RunError
from fedbb.flower.admin.control import Control, Run
from fedbb.flower.admin.paths import Scalar
from fedbb.recipes.spec import Recipe
from fedbb.runs.folder import Record, RunFolder

GLANCE = 0.5
"""Seconds between two looks at a run."""

SAYS = "fedbb: "
IN_RECORDS = re.compile(r"round \d+ of |round \d+: client \d+ is left out|all rounds are done")


def run_config(recipe: Recipe, folder: Path, *, resume: bool, score: str) -> dict[str, Scalar]:
    """Return what a run is told: the recipe, whole, and the folder at the server."""
    return {
        "recipe": located(recipe).model_dump_json(),
        "folder": str(folder.resolve()),
        "resume": resume,
        "score": score,
    }


def located(recipe: Recipe) -> Recipe:
    """Return the recipe with paths that lead somewhere from here made independent of here."""
    data = recipe.data
    partition = replace(data.partition, path=_absolute(data.partition.path))
    data = data.model_copy(update={"path": _absolute(data.path), "partition": partition})
    return recipe.model_copy(update={"data": data})


class Following:
    """A run under way: its records as they are committed, its words, and how it ended."""

    def __init__(self, control: Control, run: int, folder: Path) -> None:
        self.control = control
        self.run = run
        self.folder = RunFolder(folder)
        self.ending: Run | None = None
        self._heard: SimpleQueue[str] = SimpleQueue()
        self._listener = Thread(target=self._listen, daemon=True)

    def __iter__(self) -> Iterator[Record | str]:
        """Yield each round that this run commits, and what else the server tells, to the end."""
        self._listener.start()
        seen = self._committed()
        while self.ending is None:
            state = self._look()
            if state is not None and state.is_over:
                self._listener.join(GLANCE)
            yield from self._words()
            for record in self._new(seen):
                seen = record["round"]
                yield record
            if state is not None and state.is_over:
                self.ending = state
            else:
                time.sleep(GLANCE)

    def stop(self, seconds: float = 10.0) -> None:
        """Stop the run and wait until the server has let go of it."""
        self.control.stop(self.run)
        limit = time.monotonic() + seconds
        while not self.control.run(self.run).is_over and time.monotonic() < limit:
            time.sleep(GLANCE)

    def _look(self) -> Run | None:
        """Return how the run stands, None while the server does not answer: it may come back."""
        try:
            return self.control.run(self.run)
        except RunError:
            return None

    def _committed(self) -> int:
        records = self.folder.records()
        return int(records[-1]["round"]) if records else 0

    def _new(self, seen: int) -> list[Record]:
        # The round that was under way when a run was cut is made again, under the same number.
        return [record for record in self.folder.records() if record["round"] > seen]

    def _words(self) -> Iterator[str]:
        while not self._heard.empty():
            yield self._heard.get()

    def _listen(self) -> None:
        """Hear what the server's side of the run tells; what is in the records is left out."""
        try:
            for text, _ in self.control.log(self.run):
                for line in text.splitlines():
                    said = line.removeprefix(SAYS)
                    if said != line and not IN_RECORDS.match(said):
                        self._heard.put(said)
        except RunError:
            return  # the words are lost, the records are not


def _absolute(path: str | None) -> str | None:
    return str(Path(path).resolve()) if path is not None and Path(path).exists() else path
