"""Signed messages: a JSON header, a signature and raw bytes, without pickle.

The bytes of a message are: `fbb1`, the header's length (4 bytes, little-endian), the header, 64
bytes of signature, the parts one after the other. The signature covers the header, which names
run, round, attempt, stage, roster and sender, and the SHA-256 of all parts.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedbb.errors import RefusedError
from fedbb.secagg.primitives.keys import SIGNATURE, Entropy, Identity, is_signed
from fedbb.secagg.protocol.canonical import (
    canonical_json,
    parse_record,
    read_clients,
    read_flag,
    read_hex,
    read_integer,
    read_text,
)
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster

Part = bytes | memoryview

TOKEN = 16
_MAGIC = b"fbb1"
_PURPOSE = b"fedbb letter 1\0"
_LONGEST_HEADER = 2**20
_FIELDS = frozenset(
    ("run", "round", "attempt", "token", "stage", "roster", "sender", "facts", "parts")
)


@dataclass(frozen=True)
class AttemptId:
    """Identifies an attempt at a round of a run; the random token is unique per attempt."""

    run: str
    round: int
    attempt: int
    token: str

    @classmethod
    def draw(cls, run: str, number: int, attempt: int, entropy: Entropy) -> AttemptId:
        """Return the id of a new attempt."""
        return cls(run, number, attempt, entropy(TOKEN).hex())

    @classmethod
    def read(cls, record: Mapping[str, Any], what: str) -> AttemptId:
        """Return the id in a record; refuse an invalid one."""
        read_hex(record["token"], f"the token of {what}", TOKEN)
        return cls(
            read_text(record["run"], f"the run of {what}"),
            read_integer(record["round"], f"the round of {what}"),
            read_integer(record["attempt"], f"the attempt of {what}", 1),
            record["token"],
        )

    def __str__(self) -> str:
        return f"{self.run}, round {self.round}, attempt {self.attempt}"


@dataclass(frozen=True, eq=False)
class SignedMessage:
    """The content of a message between server and client in one stage of an attempt."""

    attempt_id: AttemptId
    stage: str
    sender: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    parts: Sequence[Part] = ()

    def clients(self, fact: str) -> tuple[int, ...]:
        """Return a fact that is a list of clients in ascending order."""
        return read_clients(self.facts.get(fact), f"`{fact}`")

    def sized(self, *lengths: int) -> list[bytes]:
        """Return the parts, which must have these lengths."""
        if [len(part) for part in self.parts] != list(lengths):
            raise RefusedError(f"a message of stage {self.stage} has parts of a wrong length")
        return [bytes(part) for part in self.parts]


def sign_message(message: SignedMessage, roster: Roster, identity: Identity) -> bytes:
    """Return a message as bytes, signed by its sender."""
    header = canonical_json(
        {
            **asdict(message.attempt_id),
            "stage": message.stage,
            "roster": roster.digest,
            "sender": message.sender,
            "facts": dict(message.facts),
            "parts": [len(part) for part in message.parts],
        }
    )
    digest = hashlib.sha256()
    for part in message.parts:
        digest.update(part)
    signature = identity.sign(_signed_bytes(header, digest.digest()))
    return b"".join((_MAGIC, struct.pack("<I", len(header)), header, signature, *message.parts))


def verify_message(
    data: Part, roster: Roster, stage: str, sender: int | None, attempt_id: AttemptId | None = None
) -> SignedMessage:
    """Return the message in these bytes if it is the expected one and its signature is valid.

    Args:
        data: bytes from another party, not trusted.
        roster: the roster that the message must name and whose keys verify it.
        stage: the expected stage.
        sender: the expected sender; None accepts every member, but not the server.
        attempt_id: the expected attempt; None accepts every attempt.

    Returns:
        The message.

    Raises:
        RefusedError: if the bytes are malformed, unexpected or not signed by the sender.
    """
    header, signature, body = _split(data)
    record = parse_record(header, "a message's header", _FIELDS)
    message = _read(record, body)
    if record["roster"] != roster.digest:
        raise RefusedError("a message names another roster than the one pinned here")
    if message.stage != stage:
        raise RefusedError(f"a message of stage {stage} is expected")
    if attempt_id is not None and message.attempt_id != attempt_id:
        raise RefusedError(f"a message is from another attempt than {attempt_id}")
    if message.sender == AGGREGATOR if sender is None else message.sender != sender:
        raise RefusedError(f"a message of stage {stage} is not from the expected sender")
    key = roster.key_of(message.sender)
    if not is_signed(key, signature, _signed_bytes(header, hashlib.sha256(body).digest())):
        raise RefusedError(f"a message of stage {stage} has an invalid signature")
    return message


def verify_agreements(
    parts: Sequence[Part],
    attempt_id: AttemptId,
    roster: Roster,
    survivors: Sequence[int],
) -> tuple[int, bool]:
    """Verify what survivors of a sum have signed about it.

    Refuses a signature under another list of survivors, or of a client that is none of them.

    Returns:
        How many survivors signed, and whether all of them declare an unchanged vector.
    """
    signers, same = set(), True
    for part in parts:
        agreed = verify_message(part, roster, "agree", None, attempt_id)
        if agreed.sender not in survivors:
            raise RefusedError(f"client {agreed.sender} signed and is not among the survivors")
        if agreed.clients("survivors") != tuple(survivors):
            raise RefusedError(f"client {agreed.sender} has agreed to another list of survivors")
        same &= read_flag(agreed.facts.get("same"), "whether a vector is the same")
        signers.add(agreed.sender)
    return len(signers), same and signers == set(survivors)


def check_group(client: int, group: Sequence[int], among: Collection[int], least: int) -> None:
    """Refuse a group of clients that is too small, has outsiders, or lacks this client."""
    outsiders = set(group) - set(among)
    if outsiders:
        raise RefusedError(f"client {min(outsiders)} is not among the clients of this sum")
    if client not in group:
        raise RefusedError(f"client {client} is asked about a sum that it is not part of")
    if len(group) < least:
        raise RefusedError(f"{len(group)} clients are too few for a sum; {least} are needed")


def _split(data: Part) -> tuple[bytes, bytes, memoryview]:
    """Return header, signature and body of a message's bytes."""
    view = memoryview(data).cast("B")
    start = len(_MAGIC) + 4
    if len(view) < start or view[: len(_MAGIC)] != _MAGIC:
        raise RefusedError("these bytes are not a message")
    (length,) = struct.unpack("<I", view[len(_MAGIC) : start])
    if length > _LONGEST_HEADER or len(view) < start + length + SIGNATURE:
        raise RefusedError("a message is cut short")
    middle = start + length
    body = view[middle + SIGNATURE :]
    return bytes(view[start:middle]), bytes(view[middle : middle + SIGNATURE]), body


def _read(record: Mapping[str, Any], body: memoryview) -> SignedMessage:
    """Return a message after checking the type of every field of its header."""
    attempt_id = AttemptId.read(record, "a message")
    sender = read_integer(record["sender"], "a message's sender", AGGREGATOR)
    facts, lengths = record["facts"], record["parts"]
    if not isinstance(facts, dict) or not isinstance(lengths, list):
        raise RefusedError("a message's facts or parts have a wrong type")
    parts, start = [], 0
    for length in lengths:
        end = start + read_integer(length, "a part's length")
        parts.append(body[start:end])
        start = end
    if start != len(body):
        raise RefusedError("a message is longer or shorter than its parts")
    stage = read_text(record["stage"], "a message's stage")
    return SignedMessage(attempt_id, stage, sender, facts, tuple(parts))


def _signed_bytes(header: bytes, digest: bytes) -> bytes:
    return _PURPOSE + digest + header
