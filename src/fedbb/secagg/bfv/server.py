"""The server's side of a sum of integers under BFV.

One of the clients draws the keys. All clients encrypt for it, the server adds the ciphertexts, and
the key-holder decrypts the sum and nothing else. This holds as long as server and key-holder do not
collude and the server sends it the sum: a key-holder cannot distinguish a sum from a single vector.
Therefore models are summed under masks, and statistics too unless a recipe says `bfv`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedbb.errors import PrivacyError, RefusedError
from fedbb.secagg.bfv.cipher import MOST_CLIENTS, BfvTotal, ciphertexts
from fedbb.secagg.bfv.client import RECEIPT
from fedbb.secagg.primitives.fixed_point import WORD, RingArray
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.messages import SignedMessage, verify_agreements
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster
from fedbb.secagg.protocol.secure_aggregation import (
    CohortChangedError,
    SumRequest,
    SumResult,
    sum_over_cohort,
)
from fedbb.secagg.protocol.transport import StageExchange, Transport


@dataclass(frozen=True, eq=False)
class BfvSumServer:
    """Sums integers; the first client of the cohort that answers holds the keys.

    Args:
        roster: the clients and the terms of the sum.
        identity: the private key of the roster's aggregator.
        entropy: the source of random bytes.
    """

    roster: Roster
    identity: Identity
    entropy: Entropy = os.urandom

    def __post_init__(self) -> None:
        self.roster.check_identity(AGGREGATOR, self.identity)

    def __call__(
        self, request: SumRequest, clients: Sequence[int], transport: Transport
    ) -> SumResult:
        """Return the sum over those of the clients who stay to the end."""
        if not request.whole or len(set(clients)) > MOST_CLIENTS:
            raise PrivacyError(f"BFV sums integers of up to {MOST_CLIENTS} clients")
        server = (self.roster, self.identity, self.entropy)
        return sum_over_cohort(_sum_once, request, clients, transport, server)


def _sum_once(
    request: SumRequest, cohort: tuple[int, ...], exchange: StageExchange
) -> tuple[RingArray, tuple[int, ...]]:
    """Return the sum of one attempt and its clients."""
    exchange.require("context", cohort, exchange.roster.least)
    attempt = _Attempt(request, cohort, exchange)
    present = attempt.collect()
    if attempt.holder not in present:
        raise CohortChangedError(present)
    return attempt.reveal(present), present


@dataclass(eq=False)
class _Attempt:
    """The stages with one cohort, whose first client is the key-holder."""

    request: SumRequest
    cohort: tuple[int, ...]
    exchange: StageExchange
    _context: bytes = b""
    _total: BfvTotal | None = None
    _receipts: dict[int, bytes] = field(default_factory=dict)
    _sum: RingArray | None = None

    @property
    def holder(self) -> int:
        """The client that draws the keys."""
        return self.cohort[0]

    def collect(self) -> tuple[int, ...]:
        """Add the clients' ciphertexts as they arrive; return who is left of the cohort."""
        facts: dict[str, object] = {"cohort": list(self.cohort)}
        if not self.exchange.broadcast("context", [self.holder], self._accept_context, facts):
            return self.cohort[1:]
        facts |= {"length": self.request.length}
        return self.exchange.broadcast("encrypt", self.cohort, self._add, facts, [self._context])

    def reveal(self, survivors: tuple[int, ...]) -> RingArray:
        """Return the sum as the key-holder decrypts it."""
        self.exchange.require("encrypt", survivors, self.exchange.roster.needed(len(self.cohort)))
        assert self._total is not None
        holders = self.exchange.broadcast(
            "decrypt",
            [self.holder],
            self._accept_sum,
            {"survivors": list(survivors), "length": self.request.length},
            [*(self._receipts[client] for client in survivors), *self._total.parts()],
        )
        self.exchange.require("decrypt", holders, 1)
        assert self._sum is not None
        return self._sum

    def _accept_context(self, message: SignedMessage, data: bytes) -> None:
        if message.clients("cohort") != self.cohort or len(message.parts) != 1:
            raise RefusedError("it is not a context for this cohort")
        self._total = BfvTotal(bytes(message.parts[0]), self.request.length)
        self._context = data

    def _add(self, message: SignedMessage, _: bytes) -> None:
        if self._total is None or len(message.parts) != 1 + ciphertexts(self.request.length):
            raise RefusedError("it is not the requested vector")
        receipt, *parts = (bytes(part) for part in message.parts)
        roster = self.exchange.roster
        verify_agreements([receipt], RECEIPT, message.attempt_id, roster, [message.sender])
        self._total.add(parts)
        self._receipts[message.sender] = receipt

    def _accept_sum(self, message: SignedMessage, _: bytes) -> None:
        (content,) = message.sized(self.request.length * WORD.itemsize)
        self._sum = np.frombuffer(content, WORD).astype(np.uint64)
