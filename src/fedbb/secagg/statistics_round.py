"""The sums before round 1: each client commits to its numbers, they are added up, told, confirmed.

They are computed once in a run and never for a part of the clients: two sums that differ in one
client would tell that client's numbers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbb.errors import RefusedError
from fedbb.records import ClientFailure, IntArray
from fedbb.secagg.masked.stage_exchange import Gathering, Take
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.canonical import a_number, some_bytes
from fedbb.secagg.protocol.messages import Letter, Occasion, seal, unseal
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster
from fedbb.secagg.protocol.transport import Wire
from fedbb.secagg.secure_aggregation import Question, SecureSum
from fedbb.secagg.statistics import Sums, Terms, commitment, read_sums

COMMIT, TOLD = "commit", "told"
"""Stages before and after the sum itself."""

ROUND = 0
"""The round in which the statistics are summed."""

LENGTH = 3
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Statistics:
    """The sums, and what an auditor needs: each client's signed commitment and confirmation."""

    sums: Sums
    commitments: Mapping[int, bytes]
    confirmations: Mapping[int, bytes]
    absences: tuple[ClientFailure, ...] = ()
    attempts: int = 1


@dataclass(frozen=True, eq=False)
class Pledging:
    """The server's side; `identity` is that of the roster's aggregator."""

    run: str
    roster: Roster
    identity: Identity
    terms: Terms
    entropy: Entropy = os.urandom

    def __call__(self, secure_sum: SecureSum, clients: Sequence[int], wire: Wire) -> Statistics:
        """Return the sums over the clients who committed and stayed to the end."""
        occasion = Occasion.draw(self.run, ROUND, 1, self.entropy)
        server = Gathering(self.roster, self.identity, occasion, wire)
        commitments: dict[int, bytes] = {}
        confirmations: dict[int, bytes] = {}
        able = server.ask_alike(COMMIT, clients, _keeping(commitments), {})
        total = secure_sum(Question(self.run, ROUND, LENGTH, whole=True), able, wire)
        sums = read_sums(np.asarray(total.values, np.int64), total.clients, self.terms)
        facts = {"sums": total.values.tolist(), "clients": list(total.clients)}
        agreed = server.ask_alike(TOLD, total.clients, _keeping(confirmations), facts)
        server.require(TOLD, agreed, self.roster.needed(len(total.clients)))
        absences = sorted((*server.absences, *total.absences), key=lambda gone: gone.client)
        return Statistics(sums, commitments, confirmations, tuple(absences), total.attempts)


def _keeping(found: dict[int, bytes]) -> Take:
    """Keep signed letters that hold a digest."""

    def take(letter: Letter, data: bytes) -> None:
        some_bytes(letter.facts.get("sha256"), "a digest", _DIGEST)
        found[letter.sender] = data

    return take


@dataclass(frozen=True, eq=False)
class Pledge:
    """A client's side: its own numbers with a nonce, for one run and roster."""

    run: str
    client: int
    roster: Roster
    identity: Identity
    nonce: bytes
    declared: IntArray

    def commit(self, message: bytes) -> bytes:
        """Return a signed commitment to the numbers."""
        asked = self._read(message, COMMIT)
        return self._signed(asked, commitment(self.nonce, self.declared))

    def confirm(self, message: bytes, terms: Terms) -> tuple[Sums, bytes]:
        """Return the sums told and this client's signature under them, or refuse them."""
        told = self._read(message, TOLD)
        clients = told.clients("clients")
        if self.client not in clients or len(clients) < self.roster.least:
            raise RefusedError("the sums are over too few clients, or without this one")
        sums = read_sums(_totals(told.facts.get("sums")), clients, terms)
        return sums, self._signed(told, hashlib.sha256(message).hexdigest())

    def _read(self, message: bytes, stage: str) -> Letter:
        letter = unseal(message, self.roster, stage, AGGREGATOR)
        if (letter.occasion.run, letter.occasion.round) != (self.run, ROUND):
            raise RefusedError(f"a letter of stage {stage} is about a run this client did not join")
        return letter

    def _signed(self, asked: Letter, digest: str) -> bytes:
        answer = Letter(asked.occasion, asked.stage, self.client, {"sha256": digest})
        return seal(answer, self.roster, self.identity)


def _totals(value: Any) -> IntArray:
    if not isinstance(value, list) or len(value) != LENGTH:
        raise RefusedError(f"the sums must be {LENGTH} whole numbers")
    return np.array([a_number(entry, "a sum", most=2**62) for entry in value], dtype=np.int64)
