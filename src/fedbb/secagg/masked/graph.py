"""Who shares masks and secrets with whom in a masked sum, and what survivors sign.

In a complete graph everybody does with everybody. In a sparse graph a client draws its neighbours
itself, see `fedbb.secagg.neighbours`; and what a client signs names the cohort and the survivors by
their digests, so that messages stay short in sums over thousands of clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from fedbb.errors import RefusedError
from fedbb.secagg.primitives.keys import KEY, SIGNATURE, Entropy, Identity, is_signed
from fedbb.secagg.protocol.canonical import canonical_json, read_flag
from fedbb.secagg.protocol.messages import (
    AttemptId,
    SignedMessage,
    verify_agreements,
    verify_message,
)
from fedbb.secagg.protocol.roster import Roster

_SURVIVORS = b"fedbb survivors 1\0"


@dataclass(frozen=True, repr=False)
class Pair:
    """Two public keys, two secret keys or two shares: the first for shares, the second for masks.

    A pair of shares is one of the seed of a client's self mask and one of its secret mask key.
    """

    first: bytes
    second: bytes


@dataclass(frozen=True, repr=False)
class Announcement:
    """What a client has announced and signed: its public keys, and the neighbours it drew."""

    keys: Pair
    drawn: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Neighbours:
    """A client's place in the graph.

    Args:
        peers: the public keys of all clients that it shares a mask with, and its own.
        holders: who gets shares of its secrets.
        owners: whose secrets it gets shares of.
    """

    peers: Mapping[int, Pair]
    holders: tuple[int, ...]
    owners: tuple[int, ...]


def draw_neighbours(
    roster: Roster, cohort: Sequence[int], client: int, entropy: Entropy
) -> tuple[int, ...]:
    """Return the neighbours that a client draws, all sets alike; none in a complete graph."""
    rest = [other for other in cohort if other != client]
    for place in range(roster.neighbours):
        # 16 random bytes modulo a small number are as good as uniform.
        other = place + int.from_bytes(entropy(16), "big") % (len(rest) - place)
        rest[place], rest[other] = rest[other], rest[place]
    return tuple(sorted(rest[: roster.neighbours]))


def announced_facts(roster: Roster, cohort: Sequence[int], drawn: Sequence[int]) -> dict[str, Any]:
    """Return what a client signs together with its public keys."""
    if not roster.is_sparse:
        return {"cohort": list(cohort)}
    return {"cohort_sha256": clients_digest(cohort), "neighbours": list(drawn)}


def read_announcement(
    message: SignedMessage, roster: Roster, cohort: tuple[int, ...]
) -> Announcement:
    """Return what a client announced; refuse it if it is for another cohort."""
    sender = message.sender
    drawn: tuple[int, ...] = ()
    if roster.is_sparse:
        same = message.facts.get("cohort_sha256") == clients_digest(cohort)
        drawn = message.clients("neighbours")
    else:
        same = message.clients("cohort") == cohort
    if not same:
        raise RefusedError(f"client {sender} announced its keys for another cohort")
    if len(drawn) != roster.neighbours or sender in drawn or not _members(cohort).issuperset(drawn):
        raise RefusedError(f"client {sender} has not drawn {roster.neighbours} other clients")
    return Announcement(Pair(*message.sized(KEY, KEY)), drawn)


def verify_neighbours(
    message: SignedMessage,
    roster: Roster,
    cohort: tuple[int, ...],
    client: int,
    drawn: tuple[int, ...],
) -> Neighbours:
    """Return a client's place in the graph from the announcements that the server passes on.

    Each is signed by its client. In a sparse graph they must be those of the neighbours that this
    client drew, and may be those of clients that drew it.
    """
    senders = message.clients("senders") if roster.is_sparse else cohort
    if len(message.parts) != len(senders) or not {client, *drawn} <= set(senders):
        raise RefusedError("the cohort's keys are not complete")
    announced = {
        sender: _verify_announcement(bytes(part), roster, sender, message.attempt_id, cohort)
        for sender, part in zip(senders, message.parts, strict=True)
    }
    peers = {sender: found.keys for sender, found in announced.items()}
    every = [key for pair in peers.values() for key in (pair.first, pair.second)]
    if len(set(every)) < len(every):
        raise RefusedError("two public keys of a cohort are the same")
    if not roster.is_sparse:
        return Neighbours(peers, cohort, cohort)
    owners = tuple(sender for sender, found in announced.items() if client in found.drawn)
    strangers = set(senders) - {client, *drawn, *owners}
    if strangers:
        raise RefusedError(f"client {min(strangers)} is not a neighbour of client {client}")
    return Neighbours(peers, drawn, owners)


def sign_survivors(
    roster: Roster,
    attempt_id: AttemptId,
    identity: Identity,
    survivors: Sequence[int],
    *,
    same: bool,
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the facts and parts of a client's agreement to a list of survivors."""
    if not roster.is_sparse:
        return {"survivors": list(survivors), "same": same}, []
    signature = identity.sign(_statement(roster, attempt_id, survivors, same=same))
    return {"same": same}, [signature]


def read_agreement(
    message: SignedMessage, data: bytes, roster: Roster, survivors: Sequence[int]
) -> tuple[bytes, bool]:
    """Return, at the server, what of an agreement is shown to clients, and whether it says `same`.

    An agreement that clients would refuse is refused here.
    """
    if not roster.is_sparse:
        verify_agreements([data], message.attempt_id, roster, survivors)
        return data, True
    same = read_flag(message.facts.get("same"), "whether a vector is the same")
    (signature,) = message.sized(SIGNATURE)
    statement = _statement(roster, message.attempt_id, survivors, same=same)
    if not _is_statement_signed(roster.key_of(message.sender), signature, statement):
        raise RefusedError(f"client {message.sender} has agreed to another list of survivors")
    return signature, same


def shown_agreements(
    roster: Roster, agreed: Mapping[int, tuple[bytes, bool]]
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the facts and parts of a message that shows agreements to clients."""
    order = sorted(agreed)
    if not roster.is_sparse:
        return {}, [agreed[client][0] for client in order]
    changed = [client for client in order if not agreed[client][1]]
    signatures = b"".join(agreed[client][0] for client in order)
    return {"signers": order, "changed": changed}, [signatures]


def count_agreements(
    message: SignedMessage, roster: Roster, survivors: Sequence[int]
) -> tuple[int, bool]:
    """Return how many survivors signed their list, and whether all declare an unchanged vector."""
    attempt_id = message.attempt_id
    if not roster.is_sparse:
        return verify_agreements(message.parts, attempt_id, roster, survivors)
    signers, changed = message.clients("signers"), set(message.clients("changed"))
    if not set(survivors).issuperset(signers) or not changed.issubset(signers):
        raise RefusedError("a client signed and is not among the survivors")
    (signatures,) = message.sized(SIGNATURE * len(signers))
    statements = {
        same: _statement(roster, attempt_id, survivors, same=same) for same in (True, False)
    }
    for place, signer in enumerate(signers):
        signature = signatures[SIGNATURE * place : SIGNATURE * (place + 1)]
        statement = statements[signer not in changed]
        if not _is_statement_signed(roster.key_of(signer), signature, statement):
            raise RefusedError(f"client {signer} has agreed to another list of survivors")
    return len(signers), not changed and len(signers) == len(survivors)


@lru_cache(maxsize=16)
def clients_digest(clients: tuple[int, ...]) -> str:
    """Return the SHA-256 of a list of clients."""
    return hashlib.sha256(canonical_json(list(clients))).hexdigest()


@lru_cache(maxsize=4)
def _members(clients: tuple[int, ...]) -> frozenset[int]:
    return frozenset(clients)


def _statement(
    roster: Roster, attempt_id: AttemptId, survivors: Sequence[int], *, same: bool
) -> bytes:
    """Return what survivors sign: the same bytes for all of them."""
    content = [roster.digest, asdict(attempt_id), clients_digest(tuple(survivors)), same]
    return _SURVIVORS + canonical_json(content)


# Each client verifies what others signed. Simulated clients are in one process, where equal bytes
# are verified once.
@lru_cache(maxsize=2**12)
def _verify_announcement(
    part: bytes, roster: Roster, sender: int, attempt_id: AttemptId, cohort: tuple[int, ...]
) -> Announcement:
    signed = verify_message(part, roster, "keys", sender, attempt_id)
    return read_announcement(signed, roster, cohort)


@lru_cache(maxsize=2**13)
def _is_statement_signed(public: bytes, signature: bytes, statement: bytes) -> bool:
    return is_signed(public, signature, statement)
