"""What the clients of a private simulation keep to themselves, in a folder apart from the server's.

In the field each of these files lies at another site. Nothing the server does reads them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedbb._util.files import replacing
from fedbb.errors import RunError
from fedbb.records import IntArray
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.statistics import Sums


@dataclass(frozen=True, eq=False, repr=False)
class Kept:
    """A client's identity, the numbers it committed to with their nonce, and the sums it was told.

    `sums` is None until they are told, and for a client that missed or refused them.
    """

    identity: Identity
    nonce: bytes
    declared: IntArray
    sums: Sums | None = None


@dataclass(frozen=True)
class PartyFiles:
    """A file for each client, readable by the owner alone."""

    folder: Path

    def save(self, client: int, kept: Kept) -> None:
        """Write what a client keeps."""
        sums = kept.sums
        content = {
            "identity": kept.identity.secret.hex(),
            "nonce": kept.nonce.hex(),
            "declared": kept.declared.tolist(),
            "sums": None if sums is None else [sums.samples, sums.evenness, list(sums.clients)],
        }
        with replacing(self._path(client)) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write((json.dumps(content) + "\n").encode())

    def load(self, client: int) -> Kept:
        """Return what a client keeps, or refuse a damaged file."""
        path = self._path(client)
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
            sums = content["sums"]
            return Kept(
                Identity(bytes.fromhex(content["identity"])),
                bytes.fromhex(content["nonce"]),
                np.array(content["declared"], dtype=np.int64),
                None if sums is None else Sums(int(sums[0]), float(sums[1]), tuple(sums[2])),
            )
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise RunError(f"{path}, what client {client} keeps, cannot be read: {error}") from None

    def _path(self, client: int) -> Path:
        return self.folder / f"client-{client:05d}.json"


@dataclass(frozen=True, eq=False)
class SimulatedJournals:
    """The journals of all clients in one file, read once: this process alone writes to it."""

    path: Path
    decisions: dict[tuple[int, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path.exists():
            content = self.path.read_bytes()
            # A line that a crash cut short was never acted on.
            whole = content[: content.rfind(b"\n") + 1]
            for client, key, decision in map(json.loads, whole.splitlines()):
                self.decisions[client, key] = decision
            os.truncate(self.path, len(whole))

    def of(self, client: int) -> SimulatedJournal:
        """Return one client's journal."""
        return SimulatedJournal(self, client)


@dataclass(frozen=True, eq=False)
class SimulatedJournal:
    """One client's decisions."""

    journals: SimulatedJournals
    client: int

    def seen(self, key: str) -> str | None:
        """Return the decision about this key, if any."""
        return self.journals.decisions.get((self.client, key))

    def note(self, key: str, decision: str) -> str | None:
        """Keep a decision unless there is one about this key; return an earlier one, if any."""
        before = self.seen(key)
        if before is None:
            with self.journals.path.open("ab") as file:
                file.write((json.dumps([self.client, key, decision]) + "\n").encode())
            self.journals.decisions[self.client, key] = decision
        return before
