"""What a site keeps of a private run between two messages, each of which gets a fresh process."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedbb._util.files import remove_leftovers, replacing
from fedbb.errors import RefusedError, RunError
from fedbb.records import IntArray
from fedbb.secagg.protocol.journal import FileJournal
from fedbb.secagg.secure_aggregation import Party
from fedbb.secagg.statistics import NONCE, Sums


@dataclass(frozen=True, eq=False, repr=False)
class Pledged:
    """The numbers a site committed to with their nonce, and the sums it was told and accepted."""

    nonce: bytes
    declared: IntArray
    sums: Sums | None = None


@dataclass(frozen=True)
class SecureState:
    """Files of one run that only their owner can read; several processes may meet here."""

    folder: Path

    @property
    def journal(self) -> FileJournal:
        """What this site has once decided."""
        return FileJournal(self.folder / "journal")

    def pledge(self, declared: IntArray) -> Pledged:
        """Commit to these numbers, for the whole run."""
        with self._alone():
            if not self._statistics.exists():
                self._keep(Pledged(secrets.token_bytes(NONCE), declared))
            pledged = self._load()
        if not np.array_equal(pledged.declared, declared):
            raise RunError("this site has other data than when the run began")
        return pledged

    def pledged(self) -> Pledged:
        """Return what this site has committed to."""
        if not self._statistics.exists():
            raise RefusedError("this site has not committed to any numbers in this run")
        return self._load()

    def confirm(self, sums: Sums) -> None:
        """Accept the sums that were told; in a run there are no others."""
        with self._alone():
            pledged = self.pledged()
            if pledged.sums not in (None, sums):
                raise RefusedError("this site was told other sums before")
            self._keep(replace(pledged, sums=sums))

    @contextmanager
    def taking_part(self, party: Party, name: str) -> Iterator[None]:
        """Let a party go on from where it was, and keep where it is after the block.

        Each of its steps is taken once: if another process took it meanwhile, as when the server
        has begun a new attempt or sent a message twice, this one must not answer.
        """
        path = self.folder / name
        before = _content(path)
        party.restore(before)
        yield
        with self._alone():
            if _content(path) != before:
                raise RefusedError("this stage was answered already, or a new attempt has begun")
            _write(path, party.save())

    @property
    def _statistics(self) -> Path:
        return self.folder / "statistics.json"

    def _keep(self, pledged: Pledged) -> None:
        sums = pledged.sums
        content = {
            "nonce": pledged.nonce.hex(),
            "declared": pledged.declared.tolist(),
            "sums": None if sums is None else [sums.samples, sums.evenness, list(sums.clients)],
        }
        _write(self._statistics, (json.dumps(content) + "\n").encode())

    def _load(self) -> Pledged:
        try:
            content: dict[str, Any] = json.loads(self._statistics.read_bytes())
            sums = content["sums"]
            return Pledged(
                bytes.fromhex(content["nonce"]),
                np.array(content["declared"], dtype=np.int64),
                None if sums is None else Sums(int(sums[0]), float(sums[1]), tuple(sums[2])),
            )
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            raise RunError(f"{self._statistics} cannot be read") from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes out; what one that crashed left half written goes away."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            remove_leftovers(self.folder)
            yield


def open_state(folder: Path) -> SecureState:
    """Return what a site keeps in this folder, which is made if need be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"the site's state folder cannot be written: {error.strerror}") from error
    return SecureState(folder)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
