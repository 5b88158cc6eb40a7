"""Secrets of private runs: those of each client, and the keys of server and sites with the roster.

In a deployment each client's files are at its own site. The folder of a simulated run keeps the
clients' files in a folder of their own; the server's side never reads them.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets as random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedbb._util.files import remove_leftovers, replacing
from fedbb.errors import PrivacyError, RefusedError, RunError
from fedbb.records import IntArray
from fedbb.secagg.cbr import NONCE, Sums, plain_sums, read_plain_sums
from fedbb.secagg.primitives.keys import KEY, Identity
from fedbb.secagg.protocol.replay_guard import FileJournal
from fedbb.secagg.protocol.roster import Roster, read_roster
from fedbb.secagg.protocol.secure_aggregation import SecureAggregationClient

SITE_KEY, SITE_PUBLIC = "identity.key", "identity.pub"
SERVER_KEY = "aggregator.key"
ROSTER, ENROLMENT = "roster.json", "enrolment.pub"


@dataclass(frozen=True, eq=False, repr=False)
class ClientSecrets:
    """A client's secrets in one run.

    Args:
        identity: its private key.
        nonce: the random bytes in its commitment.
        declared: the numbers it committed to.
        sums: the sums it confirmed; None before that, and if it refused them.
        noise: the secret that its noise is drawn from under differential privacy.
    """

    identity: Identity
    nonce: bytes
    declared: IntArray
    sums: Sums | None = None
    noise: bytes = b""

    @classmethod
    def draw(cls, identity: Identity, declared: IntArray) -> ClientSecrets:
        """Return new secrets for these numbers."""
        return cls(identity, random.token_bytes(NONCE), declared, noise=random.token_bytes(KEY))


_TOO_LARGE = (OverflowError, RecursionError)
"""Errors of numbers beyond 64 bits, and of brackets nested too deep."""


def secrets_path(folder: Path, client: int) -> Path:
    """Return the file of a simulated client's secrets."""
    return folder / f"client-{client:05d}.json"


def save_secrets(path: Path, secrets: ClientSecrets, *, with_identity: bool = True) -> None:
    """Write a client's secrets to a file that only its owner can read."""
    sums = secrets.sums
    content = {
        **({"identity": secrets.identity.secret.hex()} if with_identity else {}),
        "nonce": secrets.nonce.hex(),
        "noise": secrets.noise.hex(),
        "declared": secrets.declared.tolist(),
        "sums": None if sums is None else plain_sums(sums),
    }
    write_secret(path, (json.dumps(content) + "\n").encode())


def load_secrets(path: Path, identity: Identity | None = None) -> ClientSecrets:
    """Return the secrets in a file; the identity is in the same file unless it is given."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        sums = content["sums"]
        return ClientSecrets(
            identity or Identity(bytes.fromhex(content["identity"])),
            bytes.fromhex(content["nonce"]),
            np.array(content["declared"], dtype=np.int64),
            None if sums is None else read_plain_sums(sums),
            bytes.fromhex(content.get("noise", "")),
        )
    except (OSError, ValueError, LookupError, TypeError, *_TOO_LARGE, PrivacyError):
        # The reason could quote a secret.
        raise RunError(f"{path}, the secrets of a client, cannot be read") from None


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    with replacing(path) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)


@dataclass(frozen=True, eq=False)
class ClientStore:
    """The secrets of one client in one run, in a folder that several processes may use.

    Flower starts a new process for each message, so that all state is in files.
    """

    folder: Path
    identity: Identity

    @classmethod
    def open(cls, folder: Path, identity: Identity) -> ClientStore:
        """Return the store in this folder, which is created if necessary."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"the site's state folder cannot be written: {error.strerror}"
            ) from error
        return cls(folder, identity)

    @property
    def journal(self) -> FileJournal:
        """The client's decisions."""
        return FileJournal(self.folder / "journal")

    def commit(self, declared: IntArray) -> ClientSecrets:
        """Commit to these numbers for the whole run."""
        with self._locked():
            if not self._path.exists():
                self._save(ClientSecrets.draw(self.identity, declared))
            secrets = load_secrets(self._path, self.identity)
        if not np.array_equal(secrets.declared, declared):
            raise RunError("this site has other data than when the run began")
        return secrets

    def load(self) -> ClientSecrets:
        """Return the secrets of the run."""
        if not self._path.exists():
            raise RefusedError("this site has not committed to any numbers in this run")
        return load_secrets(self._path, self.identity)

    def confirm(self, sums: Sums) -> None:
        """Store the confirmed sums; a run has no others."""
        with self._locked():
            secrets = self.load()
            if secrets.sums not in (None, sums):
                raise RefusedError("this site has confirmed other sums before")
            self._save(replace(secrets, sums=sums))

    @contextmanager
    def stage_of(self, client: SecureAggregationClient, name: str) -> Iterator[None]:
        """Restore the state of a sum before the block, and store it after the block.

        Each stage is answered once. If another process answered it meanwhile, because the server
        began a new attempt or sent a message twice, this one must not answer.
        """
        path = self.folder / name
        before = _content(path)
        client.restore(before)
        yield
        with self._locked():
            if _content(path) != before:
                raise RefusedError("this stage was answered already, or a new attempt has begun")
            write_secret(path, client.save())

    @property
    def _path(self) -> Path:
        return self.folder / "statistics.json"

    def _save(self, secrets: ClientSecrets) -> None:
        save_secrets(self._path, secrets, with_identity=False)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other processes, and remove partial files of a crashed one."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            remove_leftovers(self.folder)
            yield


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@dataclass(frozen=True, eq=False, repr=False)
class RosterKeys:
    """The keys of the server or of a site.

    They are read for every message, and nothing in them comes through Flower: a server that could
    distribute rosters could invent clients.

    Args:
        identity: the private key.
        roster: the roster that contains its public key.
        signed: the roster as it was signed.
        enrolment: the public key that signed it.
    """

    identity: Identity
    roster: Roster
    signed: bytes
    enrolment: bytes


def read_site_keys(folder: Path | None, client: int) -> RosterKeys:
    """Return the keys of a site in its folder.

    Args:
        folder: the folder in the site's settings, if any.
        client: the number of the site in the roster.

    Returns:
        Its keys.

    Raises:
        RunError: if a file is missing, damaged or readable by others, or the key is another one.
    """
    if folder is None:
        raise RunError(
            "node config: keys is missing; a private run needs the folder with this site's "
            f"{SITE_KEY}, {ROSTER} and {ENROLMENT}"
        )
    keys = _read_keys(folder, SITE_KEY)
    if keys.roster.members.get(client) != keys.identity.public:
        raise RunError(f"the roster in {folder} has another key, or none, for client {client}")
    return keys


def read_server_keys(folder: Path | None) -> RosterKeys:
    """Return the keys of the server in the enrolment folder; see `read_site_keys`."""
    if folder is None:
        raise RunError(
            "run config: keys is missing; a private run needs the folder with the server's "
            f"{SERVER_KEY}, {ROSTER} and {ENROLMENT}"
        )
    keys = _read_keys(folder, SERVER_KEY)
    if keys.roster.aggregator != keys.identity.public:
        raise RunError(f"the roster in {folder} has another key for the server")
    return keys


def read_run_keys(folder: Path, enrolment: bytes) -> RosterKeys:
    """Return the keys of the server of a simulated run, which are in the run folder."""
    identity = Identity(_hexadecimal(folder / SERVER_KEY))
    return _with_roster(folder, identity, enrolment)


def read_identity(path: Path) -> Identity:
    """Return the identity in a file, which only its owner may be able to read."""
    _require(path)
    if path.stat().st_mode & 0o077:
        raise RunError(f"{path} can be read by others; chmod 600 {path}")
    return Identity(_hexadecimal(path))


def read_public(path: Path) -> bytes:
    """Return the public key in a file."""
    _require(path)
    return _hexadecimal(path)


def _read_keys(folder: Path, key: str) -> RosterKeys:
    identity, enrolment = read_identity(folder / key), read_public(folder / ENROLMENT)
    _require(folder / ROSTER)
    return _with_roster(folder, identity, enrolment)


def _with_roster(folder: Path, identity: Identity, enrolment: bytes) -> RosterKeys:
    try:
        signed = (folder / ROSTER).read_bytes()
        return RosterKeys(identity, read_roster(signed, enrolment), signed, enrolment)
    except (OSError, PrivacyError) as error:
        raise RunError(f"{folder / ROSTER} cannot be used: {error}") from error


def _require(path: Path) -> None:
    if not path.exists():
        raise RunError(
            f"{path} is missing; private runs need it, and `fedbb flower enrol` creates it"
        )


def _hexadecimal(path: Path) -> bytes:
    # The content of a damaged key file must not be part of an error that others can read.
    try:
        content = bytes.fromhex(path.read_text("ascii"))
    except (OSError, ValueError):
        raise RunError(f"{path} is not a readable key") from None
    if len(content) != KEY:
        raise RunError(f"{path} is not a key of {KEY} bytes in hexadecimal")
    return content
