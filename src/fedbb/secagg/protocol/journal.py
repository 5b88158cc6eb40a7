"""What a client has once decided in a secure sum, so that no restart makes it decide otherwise."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Protocol

from fedbb._util.files import sync_folder
from fedbb.errors import PrivacyError, RefusedError
from fedbb.secagg.protocol.canonical import parse, spell


class Journal(Protocol):
    """Decisions by key; the first one about a key stands."""

    def seen(self, key: str) -> str | None:
        """Return the decision about a key, if there is one."""
        ...

    def note(self, key: str, decision: str) -> str | None:
        """Keep a decision unless there is one about this key; return the one from before, if any.

        What is kept outlasts this process before the call returns.
        """
        ...


@dataclass(frozen=True, eq=False)
class MemoryJournal:
    """A journal for parties that live and end with this process."""

    decisions: dict[str, str] = field(default_factory=dict)

    def seen(self, key: str) -> str | None:
        """Return the decision about a key, if there is one."""
        return self.decisions.get(key)

    def note(self, key: str, decision: str) -> str | None:
        """Keep a decision unless there is one; return the one from before, if any."""
        before = self.decisions.get(key)
        if before is None:
            self.decisions[key] = decision
        return before


@dataclass(eq=False)
class FileJournal:
    """A journal in a file, one line a decision, on disk before anybody is told of it.

    Processes may share it. A line that a crash cut short was never acted on, and is dropped.
    """

    path: Path
    _known: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _read: int = field(default=0, init=False, repr=False)

    def seen(self, key: str) -> str | None:
        """Return the decision about a key, if there is one."""
        with self._locked():
            return self._known.get(key)

    def note(self, key: str, decision: str) -> str | None:
        """Keep a decision unless there is one; return the one from before, if any."""
        with self._locked() as file:
            before = self._known.get(key)
            if before is None:
                file.truncate(self._read)
                file.seek(self._read)
                file.write(spell([key, decision]) + b"\n")
                os.fsync(file.fileno())
            return before

    @contextmanager
    def _locked(self) -> Iterator[FileIO]:
        """Hold the file alone, all of its lines read."""
        try:
            with self._open() as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._catch_up(file)
                yield file
        except OSError as error:
            raise PrivacyError(f"the journal {self.path} cannot be kept: {error}") from error

    def _open(self) -> FileIO:
        new = not self.path.exists()
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        if new:
            sync_folder(self.path.parent)
        return FileIO(handle, "r+")

    def _catch_up(self, file: FileIO) -> None:
        """Read the whole lines that were written since the last time, by whomever."""
        file.seek(self._read)
        content = file.read()
        content = content[: content.rfind(b"\n") + 1]
        for line in content.splitlines():
            try:
                key, decision = parse(line, "a line")
                self._known.setdefault(str(key), str(decision))
            except (RefusedError, TypeError, ValueError):
                raise PrivacyError(
                    f"the journal {self.path} is damaged; without it this client cannot know what "
                    "it has unmasked before, and takes no part"
                ) from None
        self._read += len(content)
