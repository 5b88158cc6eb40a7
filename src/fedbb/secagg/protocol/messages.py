"""Signed messages: a header in JSON, a signature, and raw bytes; no pickle.

A letter's bytes are: `fbb1`, the header's length (4 bytes, little-endian), the header, 64 bytes of
signature, the parts one after the other. The signature is over the header, which names run, round,
attempt, stage, roster and sender, and over the SHA-256 of all parts.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedbb.errors import RefusedError
from fedbb.secagg.primitives.keys import SIGNATURE, Entropy, Identity, is_signed
from fedbb.secagg.protocol.canonical import (
    a_number,
    a_text,
    parse_record,
    some_bytes,
    some_clients,
    spell,
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
class Occasion:
    """Which attempt at which round of which run; no two attempts have the same token."""

    run: str
    round: int
    attempt: int
    token: str

    @classmethod
    def draw(cls, run: str, number: int, attempt: int, entropy: Entropy) -> Occasion:
        """Return the occasion of a new attempt."""
        return cls(run, number, attempt, entropy(TOKEN).hex())

    @classmethod
    def read(cls, record: Mapping[str, Any], what: str) -> Occasion:
        """Return the occasion in a record, or refuse one that is none."""
        some_bytes(record["token"], f"the token of {what}", TOKEN)
        return cls(
            a_text(record["run"], f"the run of {what}"),
            a_number(record["round"], f"the round of {what}"),
            a_number(record["attempt"], f"the attempt of {what}", 1),
            record["token"],
        )

    def __str__(self) -> str:
        return f"{self.run}, round {self.round}, attempt {self.attempt}"


@dataclass(frozen=True, eq=False)
class Letter:
    """What one party says to the server, or the server to a party, in a stage of an attempt."""

    occasion: Occasion
    stage: str
    sender: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    parts: Sequence[Part] = ()

    def clients(self, fact: str) -> tuple[int, ...]:
        """Return a fact that is a list of clients in rising order."""
        return some_clients(self.facts.get(fact), f"`{fact}`")

    def sized(self, *lengths: int) -> list[bytes]:
        """Return the parts if there are as many, of these lengths."""
        if [len(part) for part in self.parts] != list(lengths):
            raise RefusedError(f"a letter of stage {self.stage} has parts of a wrong length")
        return [bytes(part) for part in self.parts]


def purpose(roster: Roster, occasion: Occasion, use: str, *clients: int) -> bytes:
    """Return what a key or a ciphertext is bound to, so that it serves nowhere else."""
    return spell(["fedbb", roster.digest, asdict(occasion), use, *clients])


def seal(letter: Letter, roster: Roster, identity: Identity) -> bytes:
    """Return a letter as bytes, signed by its sender."""
    header = spell(
        {
            **asdict(letter.occasion),
            "stage": letter.stage,
            "roster": roster.digest,
            "sender": letter.sender,
            "facts": dict(letter.facts),
            "parts": [len(part) for part in letter.parts],
        }
    )
    digest = hashlib.sha256()
    for part in letter.parts:
        digest.update(part)
    signature = identity.sign(_signed(header, digest.digest()))
    return b"".join((_MAGIC, struct.pack("<I", len(header)), header, signature, *letter.parts))


def unseal(
    data: Part, roster: Roster, stage: str, sender: int | None, occasion: Occasion | None = None
) -> Letter:
    """Return the letter in these bytes if it is what is awaited, and its sender signed it.

    `sender` None takes any member, `occasion` None any attempt.
    """
    header, signature, body = _open(data)
    record = parse_record(header, "a letter's header", _FIELDS)
    letter = _letter(record, body)
    if record["roster"] != roster.digest:
        raise RefusedError("a letter is about another roster than the one pinned here")
    if letter.stage != stage:
        raise RefusedError(f"a letter of stage {stage} is awaited")
    if occasion is not None and letter.occasion != occasion:
        raise RefusedError(f"a letter is from another attempt than {occasion}")
    if letter.sender == AGGREGATOR if sender is None else letter.sender != sender:
        raise RefusedError(f"a letter of stage {stage} is not from whom it should be")
    key = roster.key_of(letter.sender)
    if not is_signed(key, signature, _signed(header, hashlib.sha256(body).digest())):
        raise RefusedError(f"a letter of stage {stage} has a false signature")
    return letter


def _open(data: Part) -> tuple[bytes, bytes, memoryview]:
    """Return header, signature and body of a letter's bytes."""
    view = memoryview(data).cast("B")
    start = len(_MAGIC) + 4
    if len(view) < start or view[: len(_MAGIC)] != _MAGIC:
        raise RefusedError("these bytes are no letter")
    (length,) = struct.unpack("<I", view[len(_MAGIC) : start])
    if length > _LONGEST_HEADER or len(view) < start + length + SIGNATURE:
        raise RefusedError("a letter is cut short")
    middle = start + length
    body = view[middle + SIGNATURE :]
    return bytes(view[start:middle]), bytes(view[middle : middle + SIGNATURE]), body


def _letter(record: Mapping[str, Any], body: memoryview) -> Letter:
    """Return a letter whose header's fields are all of the right kind."""
    occasion = Occasion.read(record, "a letter")
    sender = a_number(record["sender"], "a letter's sender", AGGREGATOR)
    facts, lengths = record["facts"], record["parts"]
    if not isinstance(facts, dict) or not isinstance(lengths, list):
        raise RefusedError("a letter's facts and parts are not what they must be")
    parts, start = [], 0
    for length in lengths:
        end = start + a_number(length, "a part's length")
        parts.append(body[start:end])
        start = end
    if start != len(body):
        raise RefusedError("a letter is longer or shorter than its parts")
    stage = a_text(record["stage"], "a letter's stage")
    return Letter(occasion, stage, sender, facts, tuple(parts))


def _signed(header: bytes, digest: bytes) -> bytes:
    return _PURPOSE + digest + header
