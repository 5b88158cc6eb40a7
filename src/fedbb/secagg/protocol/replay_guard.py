"""Replay protection: decisions that a client makes once and that survive a restart.

Each decision is in the client's journal, a write-ahead log, before the client acts on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Protocol

from fedbb._util.files import sync_folder
from fedbb.errors import PrivacyError, RefusedError
from fedbb.secagg.primitives.fixed_point import RingArray, as_bytes
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.protocol.canonical import canonical_json
from fedbb.secagg.protocol.messages import AttemptId


class Journal(Protocol):
    """Decisions by key; the first decision about a key is final."""

    def lookup(self, key: str) -> str | None:
        """Return the decision about a key, or None."""
        ...

    def record(self, key: str, decision: str) -> str | None:
        """Store a decision unless there is one about this key; return the earlier one, or None.

        A stored decision survives this process before the call returns.
        """
        ...


@dataclass(frozen=True, eq=False, repr=False)
class ReplayGuard:
    """A client's decisions in secure sums, each in its journal before the client acts on it."""

    client: int
    identity: Identity
    journal: Journal

    def begin(self, attempt_id: AttemptId) -> None:
        """Take part in an attempt, once."""
        if self.journal.record(f"begun {attempt_id.token}", str(attempt_id)) is not None:
            raise RefusedError(f"client {self.client} has begun this attempt before: {attempt_id}")

    def agree(self, attempt_id: AttemptId, survivors: Sequence[int]) -> None:
        """Agree to one list of survivors in an attempt."""
        decision = _digest(survivors)
        if self.journal.record(f"agreed {attempt_id.token}", decision) not in (None, decision):
            raise RefusedError(f"client {self.client} has agreed to another list of survivors")

    def reveal(self, attempt_id: AttemptId, survivors: Sequence[int], *, same: bool) -> None:
        """Help to reveal a sum, once in an attempt, and over one set of survivors in a round.

        With `same`, all survivors have signed that their vectors are those of earlier attempts.
        A second attempt then reveals nothing new.
        """
        decision = _digest(survivors)
        if self.journal.record(f"revealed {attempt_id.token}", decision) is not None:
            raise RefusedError(f"client {self.client} has unmasked this before: {attempt_id}")
        before = self.journal.record(_round_key("revealed", attempt_id), decision)
        if before is not None and not (before == decision and same):
            raise RefusedError(
                f"client {self.client} has unmasked round {attempt_id.round} of {attempt_id.run} "
                "before, and repeats it only for the same survivors and vectors"
            )

    def is_same(self, attempt_id: AttemptId, vector: RingArray) -> bool:
        """Return whether this client has given no other vector in this round."""
        # Keyed, because a digest of a few small integers could be guessed.
        digest = hmac.new(self.identity.secret, as_bytes(vector), hashlib.sha256).hexdigest()
        if self.journal.record(_round_key("vector", attempt_id), digest) not in (None, digest):
            self.journal.record(_round_key("changed", attempt_id), "yes")
        return self.journal.lookup(_round_key("changed", attempt_id)) is None


@dataclass(eq=False)
class FileJournal:
    """A journal in a file, one JSON line per decision, that several processes may share.

    A line that a crash cut short was never acted on and is dropped. Simulated clients share one
    file: `of` returns the journal of one of them. With `durable`, a decision is on disk before
    the call returns.
    """

    path: Path
    durable: bool = True
    _known: dict[tuple[str | int, ...], str] = field(default_factory=dict, init=False, repr=False)
    _read: int = field(default=0, init=False, repr=False)

    def lookup(self, *key: str | int) -> str | None:
        """Return the decision about a key, or None."""
        with self._locked():
            return self._known.get(key)

    def record(self, *line: str | int) -> str | None:
        """Store a decision, the last argument, about the key before it, unless there is one."""
        with self._locked() as file:
            before = self._known.get(line[:-1])
            if before is None:
                file.truncate(self._read)
                file.seek(self._read)
                file.write(canonical_json(line) + b"\n")
                if self.durable:
                    os.fsync(file.fileno())
            return before

    def of(self, client: int) -> SharedJournal:
        """Return the journal of one client in this file."""
        return SharedJournal(self, client)

    @contextmanager
    def _locked(self) -> Iterator[FileIO]:
        """Hold the file exclusively, with all of its lines read."""
        try:
            with self._open() as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._catch_up(file)
                yield file
        except OSError as error:
            raise PrivacyError(f"the journal {self.path} cannot be written: {error}") from error

    def _open(self) -> FileIO:
        new = not self.path.exists()
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        if new and self.durable:
            sync_folder(self.path.parent)
        return FileIO(handle, "r+")

    def _catch_up(self, file: FileIO) -> None:
        """Read the complete lines that this or another process wrote since the last time."""
        file.seek(self._read)
        content = file.read()
        content = content[: content.rfind(b"\n") + 1]
        for line in content.splitlines():
            try:
                *key, decision = json.loads(line)
                self._known.setdefault(tuple(key), str(decision))
            except (RecursionError, TypeError, ValueError):
                raise PrivacyError(
                    f"the journal {self.path} is damaged; without it this client cannot know what "
                    "it has unmasked before, and takes no part"
                ) from None
        self._read += len(content)


@dataclass(frozen=True, eq=False)
class SharedJournal:
    """The decisions of one of several clients in a file."""

    file: FileJournal
    client: int

    def lookup(self, key: str) -> str | None:
        """Return the decision about a key, or None."""
        return self.file.lookup(self.client, key)

    def record(self, key: str, decision: str) -> str | None:
        """Store a decision unless there is one about this key; return the earlier one, or None."""
        return self.file.record(self.client, key, decision)


def _digest(clients: Sequence[int]) -> str:
    return hashlib.sha256(canonical_json(list(clients))).hexdigest()


def _round_key(decision: str, attempt_id: AttemptId) -> str:
    """Return the journal's key of a decision about all attempts at a round."""
    return f"{decision} in round {attempt_id.round} of {attempt_id.run}"
