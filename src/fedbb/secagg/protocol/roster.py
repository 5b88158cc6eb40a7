"""Who may take part in secure sums, and on what terms: signed once, pinned at every client.

A node key of Flower proves a client to the server. The roster proves clients to each other: a
server can neither invent parties nor put keys of its own in place of theirs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedbb.errors import PrivacyError, RefusedError
from fedbb.secagg.primitives.keys import KEY, SIGNATURE, Identity, is_signed
from fedbb.secagg.protocol.canonical import a_number, parse_record, some_bytes, spell

AGGREGATOR = -1
"""The server's number as a sender of messages."""

LEAST = 3
"""With two parties each would learn the other's number from the sum."""

THRESHOLDS = ("two-thirds", "majority")
_PURPOSE = b"fedbb roster 1\0"
_FIELDS = frozenset(
    ("members", "aggregator", "threshold", "least", "least_dispersion", "max_weight", "scale_bits")
)


@dataclass(frozen=True)
class Roster:
    """The members' public keys by client, the aggregator's, and the terms of every sum.

    Args:
        members: public Ed25519 keys by client.
        aggregator: the server's public key; it is no member.
        threshold: of a cohort of K, ⌊2K/3⌋+1 must stay ("two-thirds": holds against a server that
            tells different parties different things) or ⌊K/2⌋+1 ("majority").
        least: sums over fewer clients are refused.
        least_dispersion: R below this counts as this (R_min).
        max_weight: the most a client counts before weights are scaled to sum to one (w_max).
        scale_bits: binary places of a fixed-point number.
    """

    members: Mapping[int, bytes]
    aggregator: bytes
    threshold: str = "two-thirds"
    least: int = LEAST
    least_dispersion: float = 1e-3
    max_weight: float = 1.0
    scale_bits: int = 40

    def __post_init__(self) -> None:
        keys = [*self.members.values(), self.aggregator]
        if len(self.members) < LEAST:
            raise PrivacyError(
                f"a secure sum needs {LEAST} clients or more, not {len(self.members)}: of two, "
                "each would learn the other's numbers from the sum"
            )
        if any(len(key) != KEY for key in keys) or len(set(keys)) < len(keys):
            raise PrivacyError(
                f"every member of a roster, and the aggregator, needs a public key of {KEY} bytes "
                "that nobody else has"
            )
        if any(client < 0 for client in self.members):
            raise PrivacyError("clients are numbered from 0")
        self._check_terms()

    def _check_terms(self) -> None:
        if self.threshold not in THRESHOLDS:
            allowed = " or ".join(THRESHOLDS)
            raise PrivacyError(f"a roster's threshold is {allowed}, not {self.threshold!r}")
        if not LEAST <= self.least <= len(self.members):
            raise PrivacyError(
                f"a roster's least cohort must lie between {LEAST} and its {len(self.members)} "
                f"members, not be {self.least}"
            )
        if not (math.isfinite(self.least_dispersion) and self.least_dispersion > 0):
            raise PrivacyError("a roster's least dispersion must be positive")
        if not 0 < self.max_weight <= 1:
            raise PrivacyError("a roster's largest weight must lie above 0 and not above 1")
        if not 1 <= self.scale_bits <= 52:
            raise PrivacyError("a roster's numbers have 1 to 52 binary places")

    def needed(self, cohort: int) -> int:
        """Return how many of a cohort must stay to the end, so that a sum is unmasked.

        >>> roster = Roster({k: bytes([k] * 32) for k in range(3)}, bytes([9] * 32))
        >>> [roster.needed(cohort) for cohort in (3, 5, 10)]
        [3, 4, 7]
        """
        shares = 2 * cohort // 3 + 1 if self.threshold == "two-thirds" else cohort // 2 + 1
        return max(shares, self.least)

    def key_of(self, sender: int) -> bytes:
        """Return a sender's public key, or refuse whoever is not in the roster."""
        key = self.aggregator if sender == AGGREGATOR else self.members.get(sender)
        if key is None:
            raise RefusedError(f"client {sender} is not in the roster")
        return key

    @cached_property
    def digest(self) -> str:
        """What stands for this roster in every message."""
        return hashlib.sha256(_PURPOSE + spell(_plain(self))).hexdigest()


def sign_roster(roster: Roster, enrolment: Identity) -> bytes:
    """Return a roster as bytes, signed with the key of whoever enrols the clients."""
    content = _plain(roster)
    signature = enrolment.sign(_PURPOSE + spell(content))
    return spell({"roster": content, "signature": signature.hex()})


def read_roster(data: bytes, pinned: bytes) -> Roster:
    """Return the roster in these bytes if the owner of the pinned public key signed it."""
    parts = parse_record(data, "the roster", frozenset(("roster", "signature")))
    signature = some_bytes(parts["signature"], "the roster's signature", SIGNATURE)
    if not is_signed(pinned, signature, _PURPOSE + spell(parts["roster"])):
        raise RefusedError("the roster is not signed by the enrolment key that is pinned here")
    return _roster(parts["roster"])


def _plain(roster: Roster) -> dict[str, Any]:
    return {
        "members": [[client, key.hex()] for client, key in sorted(roster.members.items())],
        "aggregator": roster.aggregator.hex(),
        "threshold": roster.threshold,
        "least": roster.least,
        "least_dispersion": float(roster.least_dispersion),
        "max_weight": float(roster.max_weight),
        "scale_bits": roster.scale_bits,
    }


def _roster(content: Any) -> Roster:
    """Return the roster of a signed record; whoever signs may still have got it wrong."""
    if not isinstance(content, dict) or content.keys() != _FIELDS:
        raise RefusedError(f"a roster has the fields {', '.join(sorted(_FIELDS))}, no others")
    entries = content["members"]
    if not isinstance(entries, list) or any(
        not isinstance(entry, list) or len(entry) != 2 for entry in entries
    ):
        raise RefusedError("a roster's members are pairs of client and public key")
    members = {
        a_number(client, "a member"): some_bytes(key, "a member's key", KEY)
        for client, key in entries
    }
    if len(members) < len(entries):
        raise RefusedError("a roster names a client twice")
    terms = {name: content[name] for name in ("least_dispersion", "max_weight")}
    if any(type(value) is not float for value in terms.values()):
        raise RefusedError("a roster's least dispersion and largest weight are decimal numbers")
    return Roster(
        members,
        some_bytes(content["aggregator"], "the aggregator's key", KEY),
        threshold=str(content["threshold"]),
        least=a_number(content["least"], "a roster's least cohort"),
        scale_bits=a_number(content["scale_bits"], "a roster's scale"),
        **terms,
    )
