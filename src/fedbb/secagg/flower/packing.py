"""Letters of secure sums as Flower's records, with what a site needs to work on beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedbb.errors import ReplyError
from fedbb.flower.app.serde import (
    FACTS,
    NEVER,
    STATE,
    Outline,
    pack_client_info,
    read_arrays,
    unpack_state,
)
from fedbb.records import ClientInfo, ModelState

LETTER = "letter"


@dataclass(frozen=True)
class Enclosed:
    """What goes with a letter that asks for work: a state, and each client's memory's round."""

    state: ArrayRecord
    since: Mapping[int, int]


@dataclass(frozen=True)
class Delivery:
    """A letter as it comes to a site; without a state it asks for no work."""

    stage: str
    letter: bytes
    state: ModelState | None
    since: int | None


def pack_letter(
    stage: str, letter: bytes, client: int, enclosed: Enclosed | None = None
) -> RecordDict:
    """Return a letter to a client as a message's content."""
    since = None if enclosed is None else enclosed.since.get(client)
    facts = ConfigRecord({"stage": stage, "since": NEVER if since is None else since})
    content = RecordDict({LETTER: _wrap(letter), FACTS: facts})
    if enclosed is not None:
        content[STATE] = enclosed.state
    return content


def unpack_letter(content: RecordDict) -> Delivery:
    """Return the letter in a message to a site."""
    facts = content.get(FACTS)
    if not isinstance(facts, ConfigRecord):
        raise ReplyError(f"{FACTS} is missing or of another kind")
    stage, since = facts.get("stage"), facts.get("since")
    if not isinstance(stage, str) or type(since) is not int:
        raise ReplyError("a letter must tell its stage and the round of a memory")
    state = unpack_state(content) if STATE in content else None
    return Delivery(stage, read_letter(content), state, None if since == NEVER else since)


def pack_answer(letter: bytes) -> RecordDict:
    """Return a site's letter as a message's content: there is nothing beside it."""
    return RecordDict({LETTER: _wrap(letter)})


def read_letter(content: RecordDict) -> bytes:
    """Return a letter's bytes, of which nothing is trusted yet."""
    record = content.get(LETTER)
    if not isinstance(record, ArrayRecord):
        raise ReplyError(f"{LETTER} is missing or of another kind")
    array = read_arrays(record).get(LETTER)
    if array is None or array.dtype != np.uint8 or array.ndim != 1:
        raise ReplyError(f"{LETTER} is no row of bytes")
    return array.tobytes()


def pack_number(client: int, outline: Outline) -> RecordDict:
    """Return what a site of a private run tells of itself: its number, and no figure."""
    content = pack_client_info(ClientInfo(client, 0), outline)
    content[FACTS] = MetricRecord({"client": client})
    return content


def _wrap(letter: bytes) -> ArrayRecord:
    return ArrayRecord({LETTER: Array(np.frombuffer(letter, np.uint8))})
