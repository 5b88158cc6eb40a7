"""A sum of whole numbers under BFV, driven from the server's side.

One of the clients draws the keys. All encrypt for it, the server adds what it cannot read, and the
key-holder decrypts the sum and nothing else. That holds as long as server and key-holder do not
work together, and the server sends it the sum: a key-holder cannot tell a sum from a single
vector, which is why models are summed under masks, and statistics too unless a recipe says `bfv`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedbb.errors import PrivacyError, RefusedError
from fedbb.records import ClientFailure
from fedbb.secagg.bfv.cipher import MOST_CLIENTS, EncryptedTotal, ciphertexts
from fedbb.secagg.bfv.client import RECEIPT
from fedbb.secagg.masked.stage_exchange import Gathering, without
from fedbb.secagg.masked.verification import read_agreements
from fedbb.secagg.primitives.fixed_point import WORD, RingArray, from_ring
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.messages import Letter, Occasion
from fedbb.secagg.protocol.roster import Roster
from fedbb.secagg.protocol.transport import Wire
from fedbb.secagg.secure_aggregation import Question, Total


@dataclass(frozen=True, eq=False)
class EncryptedSum:
    """Sums whole numbers; the first client that answers holds the keys."""

    roster: Roster
    identity: Identity
    entropy: Entropy = os.urandom

    def __post_init__(self) -> None:
        if self.identity.public != self.roster.aggregator:
            raise PrivacyError("the roster knows the aggregator by another key")

    def __call__(self, question: Question, clients: Sequence[int], wire: Wire) -> Total:
        """Return the sum over those of the clients who stay to the end."""
        cohort = tuple(sorted(set(clients)))
        if not question.whole or len(cohort) > MOST_CLIENTS:
            raise PrivacyError(f"BFV sums whole numbers of up to {MOST_CLIENTS} clients")
        for client in cohort:
            self.roster.key_of(client)
        absences: list[ClientFailure] = []
        attempt = 0
        while True:
            attempt += 1
            occasion = Occasion.draw(question.run, question.round, attempt, self.entropy)
            gathering = Gathering(self.roster, self.identity, occasion, wire, absences)
            gathering.require("context", cohort, self.roster.least)
            collection = _Collection(question, cohort, gathering)
            present = collection.collect()
            if collection.holder in present:
                break
            cohort = present
        values = from_ring(collection.reveal(present), whole=True, scale_bits=0)
        return Total(values, present, without(absences, present), attempt)


@dataclass(eq=False)
class _Collection:
    """One attempt, whose key-holder is the first client of the cohort."""

    question: Question
    cohort: tuple[int, ...]
    gathering: Gathering
    _shown: bytes = b""
    _total: EncryptedTotal | None = None
    _receipts: dict[int, bytes] = field(default_factory=dict)
    _sum: RingArray | None = None

    @property
    def holder(self) -> int:
        """The client that draws the keys."""
        return self.cohort[0]

    def collect(self) -> tuple[int, ...]:
        """Add up the clients' ciphertexts as they come; return who is left of the cohort."""
        facts: dict[str, object] = {"cohort": list(self.cohort)}
        if not self.gathering.ask_alike("context", [self.holder], self._take_context, facts):
            return self.cohort[1:]
        facts |= {"length": self.question.length}
        return self.gathering.ask_alike("encrypt", self.cohort, self._add, facts, [self._shown])

    def reveal(self, survivors: tuple[int, ...]) -> RingArray:
        """Have the key-holder decrypt the sum."""
        self.gathering.require("encrypt", survivors, self.gathering.roster.needed(len(self.cohort)))
        assert self._total is not None
        holders = self.gathering.ask_alike(
            "decrypt",
            [self.holder],
            self._take_sum,
            {"survivors": list(survivors), "length": self.question.length},
            [*(self._receipts[client] for client in survivors), *self._total.parts()],
        )
        self.gathering.require("decrypt", holders, 1)
        assert self._sum is not None
        return self._sum

    def _take_context(self, letter: Letter, data: bytes) -> None:
        if letter.clients("cohort") != self.cohort or len(letter.parts) != 1:
            raise RefusedError("it is no context for this cohort")
        self._total = EncryptedTotal(bytes(letter.parts[0]), self.question.length)
        self._shown = data

    def _add(self, letter: Letter, _: bytes) -> None:
        if self._total is None or len(letter.parts) != 1 + ciphertexts(self.question.length):
            raise RefusedError("it is not the vector that was asked for")
        receipt, *parts = (bytes(part) for part in letter.parts)
        read_agreements([receipt], RECEIPT, letter.occasion, self.gathering.roster, [letter.sender])
        self._total.add(parts)
        self._receipts[letter.sender] = receipt

    def _take_sum(self, letter: Letter, _: bytes) -> None:
        (content,) = letter.sized(self.question.length * WORD.itemsize)
        self._sum = np.frombuffer(content, WORD).astype(np.uint64)
