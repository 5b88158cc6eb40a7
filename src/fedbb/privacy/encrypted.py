"""A sum of whole numbers under BFV, driven from the server's side.

One of the clients draws the keys. All encrypt for it, the server adds what it cannot read, and the
key-holder decrypts the sum and nothing else. That holds as long as server and key-holder do not
work together, and the server sends it the sum: a key-holder cannot tell a sum from a single
vector, which is why models are summed under masks, and statistics too unless a recipe says `bfv`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedbb.errors import PrivacyError, RefusedError
from fedbb.privacy.bfv import MOST_CLIENTS, EncryptedTotal, ciphertexts
from fedbb.privacy.encrypted_party import RECEIPT
from fedbb.privacy.gathering import Gathering
from fedbb.privacy.keys import Entropy, Identity
from fedbb.privacy.letters import Letter, Occasion, unseal
from fedbb.privacy.ring import WORD, RingArray, from_ring
from fedbb.privacy.roster import Roster
from fedbb.privacy.secure_sum import Question, Total
from fedbb.privacy.wire import Wire
from fedbb.records import Absence


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
        absences: list[Absence] = []
        for attempt, holder in enumerate(cohort, 1):
            occasion = Occasion.draw(question.run, question.round, attempt, self.entropy)
            left = cohort[attempt - 1 :]
            gathering = Gathering(self.roster, self.identity, occasion, wire, absences)
            gathering.require("context", left, self.roster.least)
            context = _ask_context(gathering, holder, left)
            if context is not None:
                total, survivors = _collect(gathering, question, left, context)
                values = from_ring(total, whole=True, scale_bits=self.roster.scale_bits)
                gone = (absence for absence in absences if absence.client not in survivors)
                return Total(values, survivors, tuple(gone), attempt)
        raise AssertionError("the cohort shrinks until it is refused")


def _ask_context(gathering: Gathering, holder: int, cohort: tuple[int, ...]) -> Letter | None:
    """Have one client draw keys; None if it does not answer."""
    answers: list[tuple[Letter, bytes]] = []

    def take(letter: Letter, data: bytes) -> None:
        if letter.clients("cohort") != cohort or len(letter.parts) != 1:
            raise RefusedError("it is no context for this cohort")
        answers.append((letter, data))

    gathering.ask_alike("context", [holder], take, {"cohort": list(cohort)})
    if not answers:
        return None
    letter, data = answers[0]
    return Letter(letter.occasion, letter.stage, holder, {}, (letter.parts[0], data))


def _collect(
    gathering: Gathering, question: Question, cohort: tuple[int, ...], context: Letter
) -> tuple[RingArray, tuple[int, ...]]:
    """Add up the clients' ciphertexts as they come, and have the key-holder decrypt the sum."""
    public, shown = context.parts
    total = EncryptedTotal(bytes(public), question.length)
    receipts: dict[int, bytes] = {}

    def add(letter: Letter, _: bytes) -> None:
        if len(letter.parts) != 1 + ciphertexts(question.length):
            raise RefusedError("it is not the vector that was asked for")
        receipt, *parts = (bytes(part) for part in letter.parts)
        unseal(receipt, gathering.roster, RECEIPT, letter.sender, gathering.occasion)
        total.add(parts)
        receipts[letter.sender] = receipt

    facts = {"cohort": list(cohort), "length": question.length}
    survivors = gathering.ask_alike("encrypt", cohort, add, facts, [shown])
    needed = gathering.roster.needed(len(cohort))
    gathering.require("encrypt", survivors, needed)
    sums: list[RingArray] = []

    def take(letter: Letter, _: bytes) -> None:
        (content,) = letter.sized(question.length * WORD.itemsize)
        sums.append(np.frombuffer(content, WORD).astype(np.uint64))

    gathering.ask_alike(
        "decrypt",
        [context.sender],
        take,
        {"survivors": list(survivors), "length": question.length},
        [*(receipts[client] for client in survivors), *total.parts()],
    )
    if not sums:
        gathering.require("decrypt", (), 1)
    return sums[0], survivors
