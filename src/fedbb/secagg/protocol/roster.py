"""The roster: who may take part in secure sums and on what terms; signed, pinned at each client.

A node key of Flower authenticates a client to the server. The roster authenticates clients to each
other: a server can neither invent clients nor replace their keys by its own.
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
from fedbb.secagg.protocol.canonical import (
    canonical_json,
    parse_record,
    read_hex,
    read_integer,
    read_text,
)

AGGREGATOR = -1
"""The sender number of the server in messages."""

LEAST = 3
"""The fewest clients of a sum: of two, each would learn the other's vector from the sum."""

THRESHOLDS = ("two-thirds", "majority")
_PURPOSE = b"fedbb roster 1\0"
_AGREED_RECIPE = frozenset(("privacy", "method", "gamma", "recipe"))
_FIELDS = _AGREED_RECIPE | frozenset(
    ("members", "aggregator", "threshold", "least", "least_dispersion", "max_weight", "scale_bits")
)
_SPARSE = frozenset(("neighbours", "neighbours_needed"))


@dataclass(frozen=True)
class Roster:
    """The public keys of all members and of the aggregator, and the terms of every sum.

    Args:
        members: public Ed25519 keys by client.
        aggregator: the server's public key; the server is not a member.
        threshold: how many of a cohort of K must stay: ⌊2K/3⌋+1 ("two-thirds", which resists a
            server that sends different clients different lists) or ⌊K/2⌋+1 ("majority").
        least: the smallest cohort; sums over fewer clients are refused.
        least_dispersion: a lower R is raised to this value (R_min).
        max_weight: the largest weight of a client before weights are normalized (w_max).
        scale_bits: fractional bits of a fixed-point number.
        privacy: the scheme of the statistics that the members agree to.
        method: the name of the method that they agree to.
        gamma: the share of evenness in a weight that they agree to.
        recipe: the SHA-256 of the recipe that they agree to, as far as results depend on it.
        neighbours: how many clients each one draws to share its secrets with, see
            `fedbb.secagg.neighbours`; 0 for all clients of a sum.
        neighbours_needed: how many of these recover a secret; 0 without a sparse graph.
    """

    members: Mapping[int, bytes]
    aggregator: bytes
    threshold: str = "two-thirds"
    least: int = LEAST
    least_dispersion: float = 1e-3
    max_weight: float = 1.0
    scale_bits: int = 40
    privacy: str = "masked"
    method: str = ""
    gamma: float = 0.0
    recipe: str = ""
    neighbours: int = 0
    neighbours_needed: int = 0

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
                "of its own"
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
                f"members; it is {self.least}"
            )
        if not (math.isfinite(self.least_dispersion) and self.least_dispersion > 0):
            raise PrivacyError("a roster's least dispersion must be positive")
        if not 0 < self.max_weight <= 1:
            raise PrivacyError("a roster's largest weight must lie above 0 and not above 1")
        if not 1 <= self.scale_bits <= 52:
            raise PrivacyError("a roster's fixed-point numbers have 1 to 52 fractional bits")
        if self.is_sparse or self.neighbours_needed:
            self._check_neighbours()

    def _check_neighbours(self) -> None:
        if not self.neighbours < 2 * self.neighbours_needed <= 2 * self.neighbours:
            raise PrivacyError(
                "more than half of a client's neighbours must be needed to recover its secrets; "
                f"the roster has {self.neighbours_needed} of {self.neighbours}"
            )
        if self.neighbours >= self.least:
            raise PrivacyError(
                f"a client cannot draw {self.neighbours} neighbours in a sum over {self.least}"
            )

    @property
    def is_sparse(self) -> bool:
        """Whether a client shares secrets with some clients of a sum instead of all."""
        return self.neighbours > 0

    def holders_needed(self, cohort: int) -> int:
        """Return how many of the clients that hold shares of a secret recover it."""
        return self.neighbours_needed if self.is_sparse else self.needed(cohort)

    def needed(self, cohort: int) -> int:
        """Return how many of a cohort must stay to the end for a sum to be unmasked.

        >>> roster = Roster({k: bytes([k] * 32) for k in range(3)}, bytes([9] * 32))
        >>> [roster.needed(cohort) for cohort in (3, 5, 10)]
        [3, 4, 7]
        """
        shares = 2 * cohort // 3 + 1 if self.threshold == "two-thirds" else cohort // 2 + 1
        return max(shares, self.least)

    def key_of(self, sender: int) -> bytes:
        """Return a sender's public key; refuse a sender that is not in the roster."""
        key = self.aggregator if sender == AGGREGATOR else self.members.get(sender)
        if key is None:
            raise RefusedError(f"client {sender} is not in the roster")
        return key

    def check_identity(self, sender: int, identity: Identity) -> None:
        """Refuse an identity that is not the sender's in this roster."""
        if self.key_of(sender) != identity.public:
            name = "the aggregator" if sender == AGGREGATOR else f"client {sender}"
            raise RefusedError(f"the roster has another key for {name}")

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the roster, which every message contains."""
        return hashlib.sha256(_PURPOSE + canonical_json(_plain(self))).hexdigest()


def sign_roster(roster: Roster, enrolment: Identity) -> bytes:
    """Return a roster as bytes, signed with the enrolment key."""
    content = _plain(roster)
    signature = enrolment.sign(_PURPOSE + canonical_json(content))
    return canonical_json({"roster": content, "signature": signature.hex()})


def read_roster(data: bytes, pinned: bytes) -> Roster:
    """Return the roster in these bytes if the pinned enrolment key signed it."""
    parts = parse_record(data, "the roster", frozenset(("roster", "signature")))
    signature = read_hex(parts["signature"], "the roster's signature", SIGNATURE)
    if not is_signed(pinned, signature, _PURPOSE + canonical_json(parts["roster"])):
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
        "privacy": roster.privacy,
        "method": roster.method,
        "gamma": float(roster.gamma),
        "recipe": roster.recipe,
        # Rosters of complete graphs are written as before there were others.
        **({name: getattr(roster, name) for name in sorted(_SPARSE)} if roster.is_sparse else {}),
    }


def _roster(content: Any) -> Roster:
    """Return the roster of a signed record; a signed record may still be invalid."""
    if isinstance(content, dict) and content.keys() == _FIELDS - _AGREED_RECIPE:
        raise RefusedError(
            "it is of an earlier version, without the recipe that the sites agree to; delete "
            "roster.json at the server and at every site, and enrol them again"
        )
    if not isinstance(content, dict) or content.keys() not in (_FIELDS, _FIELDS | _SPARSE):
        raise RefusedError(f"a roster has the fields {', '.join(sorted(_FIELDS))}, no others")
    entries = content["members"]
    if not isinstance(entries, list) or any(
        not isinstance(entry, list) or len(entry) != 2 for entry in entries
    ):
        raise RefusedError("a roster's members are pairs of client and public key")
    members = {
        read_integer(client, "a member"): read_hex(key, "a member's key", KEY)
        for client, key in entries
    }
    if len(members) < len(entries):
        raise RefusedError("a roster names a client twice")
    terms = {name: content[name] for name in ("least_dispersion", "max_weight", "gamma")}
    if any(type(value) is not float for value in terms.values()):
        raise RefusedError(
            "a roster's least dispersion, largest weight and gamma must be decimal numbers"
        )
    return Roster(
        members,
        read_hex(content["aggregator"], "the aggregator's key", KEY),
        threshold=str(content["threshold"]),
        least=read_integer(content["least"], "a roster's least cohort"),
        scale_bits=read_integer(content["scale_bits"], "a roster's scale"),
        privacy=read_text(content["privacy"], "a roster's privacy"),
        method=read_text(content["method"], "a roster's method"),
        recipe=read_text(content["recipe"], "a roster's recipe"),
        **{
            name: read_integer(content[name], "a roster's number of neighbours", 1)
            for name in _SPARSE & content.keys()
        },
        **terms,
    )
