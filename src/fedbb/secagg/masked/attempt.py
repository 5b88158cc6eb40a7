"""What a party knows of the attempt it is in, and that knowledge as bytes between two stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedbb.errors import RefusedError
from fedbb.secagg.primitives.keys import KEY
from fedbb.secagg.primitives.shamir import SHARE
from fedbb.secagg.protocol.canonical import (
    a_flag,
    a_number,
    parse_record,
    some_bytes,
    some_clients,
    spell,
)
from fedbb.secagg.protocol.messages import Occasion

STAGES = ("keys", "shares", "masked", "agree", "unmask")


@dataclass(frozen=True, repr=False)
class Pair:
    """Two public keys, two secret keys or two shares: for sealing shares, and for masks.

    A pair of shares is one of the seed of a client's own mask and one of its secret mask key.
    """

    first: bytes
    second: bytes


NOTHING = Pair(b"", b"")


@dataclass(frozen=True, repr=False)
class Attempt:
    """A party's knowledge; secrets that later stages do not need are forgotten on the way.

    Args:
        occasion: which attempt it is.
        cohort: the clients it began with, this one among them.
        stage: the stage that comes next.
        secrets: this party's secret keys, until it has masked its vector.
        peers: public keys of the cohort, until then too.
        seed: what its own mask comes from, until then too.
        held: shares of others' secrets, and its own share of its own, by client.
        survivors: who is in the sum, once it has agreed.
        same: its vector is the one it gave in all attempts at this round.
    """

    occasion: Occasion
    cohort: tuple[int, ...]
    stage: str
    secrets: Pair = NOTHING
    peers: Mapping[int, Pair] = field(default_factory=dict)
    seed: bytes = b""
    held: Mapping[int, Pair] = field(default_factory=dict)
    survivors: tuple[int, ...] = ()
    same: bool = True


_FIELDS = frozenset(
    {"run", "round", "attempt", "token", "cohort", "stage"}
    | {"secrets", "peers", "seed", "held", "survivors", "same"}
)


def save_attempt(attempt: Attempt) -> bytes:
    """Return an attempt as bytes; they hold secrets."""
    return spell(
        {
            **asdict(attempt.occasion),
            "cohort": list(attempt.cohort),
            "stage": attempt.stage,
            "secrets": _plain(attempt.secrets),
            "peers": [[client, *_plain(pair)] for client, pair in sorted(attempt.peers.items())],
            "seed": attempt.seed.hex(),
            "held": [[client, *_plain(pair)] for client, pair in sorted(attempt.held.items())],
            "survivors": list(attempt.survivors),
            "same": attempt.same,
        }
    )


def load_attempt(data: bytes) -> Attempt:
    """Return the attempt in these bytes, or refuse damaged ones."""
    record = parse_record(data, "a saved attempt", _FIELDS)
    if record["stage"] not in STAGES:
        raise RefusedError("a saved attempt is in no known stage")
    return Attempt(
        Occasion.read(record, "a saved attempt"),
        some_clients(record["cohort"], "its cohort"),
        record["stage"],
        _pair(record["secrets"], KEY if record["stage"] in STAGES[:3] else 0),
        _pairs(record["peers"], KEY),
        some_bytes(record["seed"], "its seed"),
        _pairs(record["held"], SHARE),
        some_clients(record["survivors"], "its survivors"),
        a_flag(record["same"], "its sameness"),
    )


def _plain(pair: Pair) -> list[str]:
    return [pair.first.hex(), pair.second.hex()]


def _pair(value: Any, length: int) -> Pair:
    if not isinstance(value, list) or len(value) != 2:
        raise RefusedError("a saved attempt has a pair that is none")
    return Pair(*(some_bytes(entry, "an entry of a pair", length) for entry in value))


def _pairs(value: Any, length: int) -> dict[int, Pair]:
    if not isinstance(value, list) or any(
        not isinstance(entry, list) or len(entry) != 3 for entry in value
    ):
        raise RefusedError("a saved attempt has pairs that are none")
    return {a_number(client, "a client"): _pair(pair, length) for client, *pair in value}
