"""The sums before round 1: clients commit to their numbers, the server sums, clients confirm.

The sums are computed once in a run and never over a part of the clients: two sums that differ in
one client would reveal that client's numbers.
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
from fedbb.secagg.cbr import Sums, Terms, commitment, read_sums
from fedbb.secagg.client_secrets import ClientSecrets
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.canonical import read_hex, read_integer
from fedbb.secagg.protocol.messages import (
    AttemptId,
    SignedMessage,
    sign_message,
    verify_message,
)
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster
from fedbb.secagg.protocol.secure_aggregation import SecureAggregation, SumRequest
from fedbb.secagg.protocol.transport import Accept, StageExchange, Transport

COMMIT, CONFIRM = "commit", "told"
"""Stages before and after the sum itself."""

STATISTICS_ROUND = 0
"""The round in which the statistics are summed."""

LENGTH = 3
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class StatisticsResult:
    """The sums, and what an auditor needs.

    Args:
        sums: the sums over all clients that stayed to the end.
        commitments: each client's commitment, signed, as it sent it.
        confirmations: each client's confirmation of the sums, signed, as it sent it.
        failures: who is missing and why.
        attempts: how many attempts the sum took.
    """

    sums: Sums
    commitments: Mapping[int, bytes]
    confirmations: Mapping[int, bytes]
    failures: tuple[ClientFailure, ...] = ()
    attempts: int = 1

    def digests(self, roster: Roster) -> dict[int, str]:
        """Return each client's commitment as it stands in its signed message."""
        return {
            client: str(verify_message(data, roster, COMMIT, client).facts["sha256"])
            for client, data in sorted(self.commitments.items())
        }


@dataclass(frozen=True, eq=False)
class StatisticsRound:
    """The server's side; `identity` is the roster's aggregator."""

    run: str
    roster: Roster
    identity: Identity
    terms: Terms
    entropy: Entropy = os.urandom

    def __call__(
        self, aggregation: SecureAggregation, clients: Sequence[int], transport: Transport
    ) -> StatisticsResult:
        """Return the sums over the clients that committed and stayed to the end."""
        attempt_id = AttemptId.draw(self.run, STATISTICS_ROUND, 1, self.entropy)
        exchange = StageExchange(self.roster, self.identity, attempt_id, transport)
        commitments: dict[int, bytes] = {}
        confirmations: dict[int, bytes] = {}
        able = exchange.broadcast(COMMIT, clients, _store_in(commitments), {})
        request = SumRequest(self.run, STATISTICS_ROUND, LENGTH, whole=True)
        total = aggregation(request, able, transport)
        sums = read_sums(np.asarray(total.values, np.int64), total.clients, self.terms)
        facts = {"sums": total.values.tolist(), "clients": list(total.clients)}
        agreed = exchange.broadcast(CONFIRM, total.clients, _store_in(confirmations), facts)
        exchange.require(CONFIRM, agreed, self.roster.needed(len(total.clients)))
        failures = sorted((*exchange.failures, *total.failures), key=lambda gone: gone.client)
        return StatisticsResult(sums, commitments, confirmations, tuple(failures), total.attempts)


def _store_in(found: dict[int, bytes]) -> Accept:
    """Accept signed messages with a digest, and store them."""

    def accept(message: SignedMessage, data: bytes) -> None:
        read_hex(message.facts.get("sha256"), "a digest", _DIGEST)
        found[message.sender] = data

    return accept


@dataclass(frozen=True, eq=False)
class StatisticsClient:
    """The client's side, for one run and roster."""

    run: str
    client: int
    roster: Roster
    secrets: ClientSecrets

    def commit_statistics(self, data: bytes) -> bytes:
        """Return a signed commitment to the client's numbers."""
        message = self._read(data, COMMIT)
        return self._sign(message, commitment(self.secrets.nonce, self.secrets.declared))

    def confirm(self, data: bytes, terms: Terms) -> tuple[Sums, bytes]:
        """Return the sums and this client's signature of them, or refuse them."""
        message = self._read(data, CONFIRM)
        clients = message.clients("clients")
        if self.client not in clients or len(clients) < self.roster.least:
            raise RefusedError("the sums are over too few clients, or without this one")
        sums = read_sums(_totals(message.facts.get("sums")), clients, terms)
        return sums, self._sign(message, hashlib.sha256(data).hexdigest())

    def _read(self, data: bytes, stage: str) -> SignedMessage:
        message = verify_message(data, self.roster, stage, AGGREGATOR)
        if (message.attempt_id.run, message.attempt_id.round) != (self.run, STATISTICS_ROUND):
            raise RefusedError(
                f"a message of stage {stage} is about a run that this client did not join"
            )
        return message

    def _sign(self, message: SignedMessage, digest: str) -> bytes:
        answer = SignedMessage(message.attempt_id, message.stage, self.client, {"sha256": digest})
        return sign_message(answer, self.roster, self.secrets.identity)


def _totals(value: Any) -> IntArray:
    if not isinstance(value, list) or len(value) != LENGTH:
        raise RefusedError(f"the sums must be {LENGTH} integers")
    return np.array([read_integer(entry, "a sum", most=2**62) for entry in value], dtype=np.int64)
