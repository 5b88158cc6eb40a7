"""Replay protection: decisions that a client makes once and that survive a restart.

Each decision is in the client's journal, a write-ahead log, before the client acts on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
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

log = logging.getLogger("fedbb")

KIND = 2**40
"""Numbers below it are those of rounds; a further sum of a round has a multiple of it added."""

SCORING, MEASURING, SITE_SCORING = KIND, 2 * KIND, 3 * KIND
"""The sums in which a round's model is scored, in which its statistics are added up, and in which
the scores on the sites' own test data are."""


class Journal(Protocol):
    """Decisions by key; the first decision about a key is final."""

    def decided(self) -> list[str]:
        """Return every key about which there is a decision."""
        ...

    def lookup(self, key: str) -> str | None:
        """Return the decision about a key, or None."""
        ...

    def record(self, key: str, decision: str) -> str | None:
        """Store a decision unless there is one about this key; return the earlier one, or None.

        A stored decision survives this process before the call returns.
        """
        ...


@dataclass(frozen=True, eq=False)
class RunLimit:
    """How many runs under one roster a client takes part in.

    Two runs over the same data whose sums differ in one client reveal that client's part by their
    difference. A resumed run keeps its name, and is the same run.

    Args:
        journal: where the runs are kept; it outlives every run.
        roster: the digest of the roster.
        allowed: how many runs; above 1 the owner of the data has consented to the difference.
    """

    journal: Journal
    roster: str
    allowed: int = 1

    def check(self, run: str) -> None:
        """Refuse a run that `admit` would refuse, without counting it."""
        known = [self.journal.lookup(self._key(number)) for number in self._numbers()]
        if run not in known and None not in known:
            raise RefusedError(self._refusal(str(known[-1])))

    def admit(self, run: str) -> None:
        """Count a run, once, or refuse it; the decision survives a restart."""
        before = None
        for number in self._numbers():
            before = self.journal.record(self._key(number), run)
            if before in (None, run):
                if number > 1:
                    log.warning(
                        "%s is run %d of %d allowed under this roster: the difference of two runs "
                        "may reveal what this client added",
                        run,
                        number,
                        self.allowed,
                    )
                return
        raise RefusedError(self._refusal(str(before)))

    def _numbers(self) -> range:
        return range(1, self.allowed + 1)

    def _key(self, number: int) -> str:
        return f"run {number} under {self.roster}"

    def _refusal(self, before: str) -> str:
        return (
            f"this site has taken part in {before}, and takes part in {self.allowed} private "
            f"{'run' if self.allowed == 1 else 'runs'} under one roster: the difference of two may "
            "reveal what one site added. Continue that run, or consent at the site with "
            f"allowed-private-runs = {self.allowed + 1} in site.toml"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ReplayGuard:
    """A client's decisions in secure sums, each in its journal before the client acts on it.

    Args:
        client: the client.
        identity: its private key.
        journal: where its decisions are kept.
        rounds: how many rounds the agreed recipe has; None for any number.
        runs: the runs that it takes part in; None for any.
    """

    client: int
    identity: Identity
    journal: Journal
    rounds: int | None = None
    runs: RunLimit | None = None

    def begin(self, attempt_id: AttemptId, most: int | None = None) -> None:
        """Take part in an attempt, once; new rounds must rise, up to the agreed number.

        Args:
            attempt_id: the attempt.
            most: how many attempts at one sum this client begins; None for any number.
        """
        self._check_round(attempt_id)
        if self.journal.record(f"begun {attempt_id.token}", str(attempt_id)) is not None:
            raise RefusedError(f"client {self.client} has begun this attempt before: {attempt_id}")
        for number in range(1, (most or 0) + 1):
            key = _round_key(f"attempt {number}", attempt_id)
            if self.journal.record(key, attempt_id.token) is None:
                return
        if most is not None:
            raise RefusedError(
                f"client {self.client} has begun {most} attempts at round {attempt_id.round} of "
                f"{attempt_id.run}; each is another draw of its neighbours, and it begins no more"
            )

    def bind_view(self, attempt_id: AttemptId, view: str) -> None:
        """Compute under one view in a round, in all of its attempts."""
        self._check_round(attempt_id)
        if self.journal.record(_round_key(_VIEW, attempt_id), view) not in (None, view):
            raise RefusedError(
                f"client {self.client} has received another model, recipe or sums in round "
                f"{attempt_id.round} of {attempt_id.run} before; it computes a round from one view"
            )

    def disclose(self, attempt_id: AttemptId) -> None:
        """Count the run before anything about this client's vector can be learned from it."""
        if self.runs is not None:
            self.runs.admit(attempt_id.run)

    def encrypt_for(self, attempt_id: AttemptId, holder: int, digest: str) -> None:
        """Encrypt for one key-holder in a round, and remember the ciphertext.

        Each key-holder decrypts one sum in a round. Two key-holders could decrypt two sums that
        differ in one client.
        """
        before = self.journal.record(_round_key("key-holder", attempt_id), str(holder))
        if before not in (None, str(holder)):
            raise RefusedError(
                f"client {self.client} has encrypted for client {before} in round "
                f"{attempt_id.round} of {attempt_id.run}, and encrypts for nobody else"
            )
        self.journal.record(f"encrypted {attempt_id.token}", f"for {holder}: {digest}")

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
        digest = self.identity.digest(as_bytes(vector))
        if self.journal.record(_round_key("vector", attempt_id), digest) not in (None, digest):
            self.journal.record(_round_key("changed", attempt_id), "yes")
        return self.journal.lookup(_round_key("changed", attempt_id)) is None

    def _check_round(self, attempt_id: AttemptId) -> None:
        """Refuse a round above the agreed number, or a new one that is not above all others.

        A round whose view is known may be repeated: a server that crashed repeats its last one.
        """
        number, run = attempt_id.round, attempt_id.run
        kind, place = divmod(number, KIND)
        known = kind == 0 or (kind * KIND <= SITE_SCORING and place > 0)
        if self.rounds is not None and not (known and place <= self.rounds):
            raise RefusedError(f"{attempt_id} is not in the recipe, which has {self.rounds} rounds")
        if self.journal.lookup(_round_key(_VIEW, attempt_id)) is not None:
            return
        last = max((known for known in self._rounds(run) if known // KIND == kind), default=-1)
        if number <= last:
            raise RefusedError(
                f"client {self.client} has answered round {last} of {run}; new rounds must rise, "
                f"and round {number} is below it"
            )

    def _rounds(self, run: str) -> Iterator[int]:
        """Yield the rounds of a run in which this client has given a vector."""
        start, end = f"{_VIEW} in round ", f" of {run}"
        for key in self.journal.decided():
            number = key[len(start) : -len(end)]
            if key.startswith(start) and key.endswith(end) and number.isdecimal():
                yield int(number)


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
    _keys: dict[tuple[str | int, ...], list[str]] = field(
        default_factory=dict, init=False, repr=False
    )
    _read: int = field(default=0, init=False, repr=False)

    def decided(self, *of: int) -> list[str]:
        """Return the keys of all decisions, or those `of` one client in a shared file."""
        with self._locked():
            return list(self._keys.get(of, ()))

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
                if tuple(key) not in self._known:
                    self._known[tuple(key)] = str(decision)
                    self._keys.setdefault(tuple(key[:-1]), []).append(str(key[-1]))
            except (IndexError, RecursionError, TypeError, ValueError):
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

    def decided(self) -> list[str]:
        """Return every key about which there is a decision."""
        return self.file.decided(self.client)

    def lookup(self, key: str) -> str | None:
        """Return the decision about a key, or None."""
        return self.file.lookup(self.client, key)

    def record(self, key: str, decision: str) -> str | None:
        """Store a decision unless there is one about this key; return the earlier one, or None."""
        return self.file.record(self.client, key, decision)


_VIEW = "view"


def _digest(clients: Sequence[int]) -> str:
    return hashlib.sha256(canonical_json(list(clients))).hexdigest()


def _round_key(decision: str, attempt_id: AttemptId) -> str:
    """Return the journal's key of a decision about all attempts at a round."""
    return f"{decision} in round {attempt_id.round} of {attempt_id.run}"
