"""A client's side of a sum under BFV: it encrypts its numbers, and one client holds the keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedbb.errors import RefusedError
from fedbb.secagg.bfv.cipher import ciphertexts, decrypt, draw_context, encrypt
from fedbb.secagg.masked.verification import check_clients, read_agreements
from fedbb.secagg.primitives.fixed_point import as_bytes, to_ring
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.protocol.canonical import a_number, parse_record, some_bytes, some_clients, spell
from fedbb.secagg.protocol.journal import Journal
from fedbb.secagg.protocol.messages import Letter, Occasion, Part, seal, unseal
from fedbb.secagg.protocol.replay_guard import Decisions
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster
from fedbb.secagg.secure_aggregation import Values

STAGES = ("context", "encrypt", "decrypt")
RECEIPT = "receipt"
"""A client signs that it took part; the key-holder sees that, but not the client's ciphertext."""

_FIELDS = frozenset(("run", "round", "attempt", "token", "cohort", "context"))


@dataclass(frozen=True, repr=False)
class Held:
    """What the key-holder keeps between stages: a context with its secret key, and for whom."""

    occasion: Occasion
    cohort: tuple[int, ...]
    context: bytes


@dataclass(eq=False, repr=False)
class EncryptedParty:
    """One client in sums under BFV. `run`, if given, is the only run it takes part in."""

    client: int
    identity: Identity
    roster: Roster
    journal: Journal
    run: str | None = None
    held: Held | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.roster.key_of(self.client) != self.identity.public:
            raise RefusedError(f"the roster knows client {self.client} by another key")
        self._decisions = Decisions(self.client, self.identity, self.journal)

    def answer(self, stage: str, message: bytes, values: Values) -> bytes:
        """Return the answer to a stage's message, or refuse with a `PrivacyError`."""
        if stage not in STAGES:
            raise RefusedError(f"a sum under BFV has the stages {', '.join(STAGES)}, no others")
        letter = unseal(message, self.roster, stage, AGGREGATOR)
        if self.run is not None and letter.occasion.run != self.run:
            raise RefusedError(f"client {self.client} takes part in {self.run}, in no other run")
        if stage == "context":
            answer = self._context(letter)
        elif stage == "encrypt":
            answer = self._encrypt(letter, values)
        else:
            answer = self._decrypt(letter)
        return seal(answer, self.roster, self.identity)

    def save(self) -> bytes:
        """Return all it must know in the next stage; secret, for the client's own eyes only."""
        return b"" if self.held is None else _save(self.held)

    def restore(self, saved: bytes) -> None:
        """Go on from what was saved."""
        self.held = _load(saved) if saved else None

    def _context(self, letter: Letter) -> Letter:
        """Draw keys, and give out all but the secret one."""
        cohort = letter.clients("cohort")
        check_clients(self.client, cohort, self.roster.members.keys(), self.roster.least)
        secret, public = draw_context()
        self.held = Held(letter.occasion, cohort, secret)
        return self._letter(letter, {"cohort": list(cohort)}, public)

    def _encrypt(self, letter: Letter, values: Values) -> Letter:
        """Give this client's numbers as only the key-holder could read them."""
        cohort = letter.clients("cohort")
        check_clients(self.client, cohort, self.roster.members.keys(), self.roster.least)
        if len(letter.parts) != 1:
            raise RefusedError("a sum under BFV has one key-holder")
        context = unseal(letter.parts[0], self.roster, "context", None, letter.occasion)
        if context.sender not in cohort or context.clients("cohort") != cohort:
            raise RefusedError("the key-holder was told of another cohort")
        if len(context.parts) != 1:
            raise RefusedError("a key-holder gives one context")
        self._decisions.begin(letter.occasion)
        vector = to_ring(
            values(), cohort=len(cohort), whole=True, scale_bits=self.roster.scale_bits
        )
        length = a_number(letter.facts.get("length"), "the vector's length", 1)
        if len(vector) != length:
            raise RefusedError(f"a vector of {length} numbers is asked for, not of {len(vector)}")
        same = self._decisions.is_same(letter.occasion, vector)
        receipt = Letter(letter.occasion, RECEIPT, self.client, {"same": same})
        signed = seal(receipt, self.roster, self.identity)
        return self._letter(letter, {}, signed, *encrypt(bytes(context.parts[0]), vector))

    def _decrypt(self, letter: Letter) -> Letter:
        """Decrypt a sum that enough clients have signed to be in, once, and forget the key."""
        held = self.held
        if held is None or held.occasion != letter.occasion:
            raise RefusedError(f"client {self.client} holds no keys for this sum")
        survivors = letter.clients("survivors")
        check_clients(self.client, survivors, held.cohort, self.roster.needed(len(held.cohort)))
        length = a_number(letter.facts.get("length"), "the vector's length", 1)
        if len(letter.parts) != len(survivors) + ciphertexts(length):
            raise RefusedError("receipts or ciphertexts are missing")
        receipts = letter.parts[: len(survivors)]
        signers, same = read_agreements(receipts, RECEIPT, held.occasion, self.roster, survivors)
        if signers < len(survivors):
            raise RefusedError("not every client of the sum has signed that it is in it")
        self._decisions.reveal(held.occasion, survivors, same=same)
        total = decrypt(held.context, [bytes(part) for part in letter.parts[len(survivors) :]])
        if len(total) != length:
            raise RefusedError("what was decrypted has another length")
        self.held = None
        return self._letter(letter, {}, as_bytes(total))

    def _letter(self, to: Letter, facts: Mapping[str, Any], *parts: Part) -> Letter:
        return Letter(to.occasion, to.stage, self.client, facts, parts)


def _save(held: Held) -> bytes:
    facts = {"cohort": list(held.cohort), "context": held.context.hex()}
    return spell(asdict(held.occasion) | facts)


def _load(saved: bytes) -> Held:
    record = parse_record(saved, "a saved key-holder", _FIELDS)
    occasion = Occasion.read(record, "a saved key-holder")
    cohort = some_clients(record["cohort"], "its cohort")
    return Held(occasion, cohort, some_bytes(record["context"], "its context"))
