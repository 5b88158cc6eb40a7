"""The client's side of a sum under BFV: it encrypts its numbers; one client holds the keys."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fedbb.errors import PrivacyError, RefusedError
from fedbb.secagg.bfv.cipher import (
    MOST_CLIENTS,
    BfvTotal,
    ciphertexts,
    decrypt,
    draw_context,
    encrypt,
)
from fedbb.secagg.primitives.fixed_point import WORD, RingArray, as_bytes, to_ring
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.canonical import (
    canonical_json,
    parse_record,
    read_clients,
    read_hex,
    read_integer,
)
from fedbb.secagg.protocol.messages import (
    AttemptId,
    Part,
    SignedMessage,
    check_group,
    sign_message,
    verify_agreements,
    verify_message,
)
from fedbb.secagg.protocol.replay_guard import Journal, ReplayGuard
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster
from fedbb.secagg.protocol.secure_aggregation import (
    CohortChangedError,
    StageExchange,
    SumRequest,
    SumResult,
    Transport,
    Values,
    sum_over_cohort,
)

STAGES = ("context", "encrypt", "decrypt")
RECEIPT = "receipt"
"""A client signs that it took part; the key-holder sees this, but not the client's ciphertext."""

_FIELDS = frozenset(("run", "round", "attempt", "token", "cohort", "context"))


@dataclass(frozen=True, repr=False)
class KeyHolderState:
    """The state of the key-holder between stages: the context with its secret key."""

    attempt_id: AttemptId
    cohort: tuple[int, ...]
    context: bytes


@dataclass(eq=False, repr=False)
class BfvSumClient:
    """One client in sums under BFV.

    Args:
        client: its number in the roster.
        identity: its private key.
        roster: the roster pinned at this client.
        journal: where its decisions are kept.
        run: the only run it takes part in; None for any.
    """

    client: int
    identity: Identity
    roster: Roster
    journal: Journal
    run: str | None = None
    holder_state: KeyHolderState | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.roster.check_identity(self.client, self.identity)
        self._guard = ReplayGuard(self.client, self.identity, self.journal)

    def answer(self, stage: str, data: bytes, values: Values) -> bytes:
        """Return the answer to the message of a stage, or refuse it with a `PrivacyError`."""
        if stage not in STAGES:
            raise RefusedError(f"a sum under BFV has the stages {', '.join(STAGES)}, no others")
        message = verify_message(data, self.roster, stage, AGGREGATOR)
        if self.run is not None and message.attempt_id.run != self.run:
            raise RefusedError(f"client {self.client} takes part in {self.run}, in no other run")
        if stage == "context":
            answer = self._draw_context(message)
        elif stage == "encrypt":
            answer = self._encrypt(message, values)
        else:
            answer = self._decrypt(message)
        return sign_message(answer, self.roster, self.identity)

    def save(self) -> bytes:
        """Return the state that the next stage needs. It is secret."""
        return b"" if self.holder_state is None else _save(self.holder_state)

    def restore(self, saved: bytes) -> None:
        """Continue from a saved state."""
        self.holder_state = _load(saved) if saved else None

    def _draw_context(self, message: SignedMessage) -> SignedMessage:
        """Draw keys, and return all but the secret one."""
        cohort = message.clients("cohort")
        check_group(self.client, cohort, self.roster.members.keys(), self.roster.least)
        secret, public = draw_context()
        self.holder_state = KeyHolderState(message.attempt_id, cohort, secret)
        return self._reply(message, {"cohort": list(cohort)}, public)

    def _encrypt(self, message: SignedMessage, values: Values) -> SignedMessage:
        """Return this client's numbers, encrypted for the key-holder."""
        cohort = message.clients("cohort")
        check_group(self.client, cohort, self.roster.members.keys(), self.roster.least)
        if len(message.parts) != 1:
            raise RefusedError("a sum under BFV has one key-holder")
        context = verify_message(message.parts[0], self.roster, "context", None, message.attempt_id)
        if context.sender not in cohort or context.clients("cohort") != cohort:
            raise RefusedError("the key-holder has keys for another cohort")
        if len(context.parts) != 1:
            raise RefusedError("a key-holder gives one context")
        self._guard.begin(message.attempt_id)
        vector = to_ring(
            values(), cohort=len(cohort), whole=True, scale_bits=self.roster.scale_bits
        )
        length = read_integer(message.facts.get("length"), "the vector's length", 1)
        if len(vector) != length:
            raise RefusedError(f"a vector of {length} numbers is requested, not of {len(vector)}")
        same = self._guard.is_same(message.attempt_id, vector)
        receipt = SignedMessage(message.attempt_id, RECEIPT, self.client, {"same": same})
        signed = sign_message(receipt, self.roster, self.identity)
        return self._reply(message, {}, signed, *encrypt(bytes(context.parts[0]), vector))

    def _decrypt(self, message: SignedMessage) -> SignedMessage:
        """Decrypt a sum once, if enough clients signed that they are part of it; drop the key."""
        state = self.holder_state
        if state is None or state.attempt_id != message.attempt_id:
            raise RefusedError(f"client {self.client} holds no keys for this sum")
        survivors = message.clients("survivors")
        check_group(self.client, survivors, state.cohort, self.roster.needed(len(state.cohort)))
        length = read_integer(message.facts.get("length"), "the vector's length", 1)
        if len(message.parts) != len(survivors) + ciphertexts(length):
            raise RefusedError("receipts or ciphertexts are missing")
        receipts = message.parts[: len(survivors)]
        signers, same = verify_agreements(
            receipts, RECEIPT, state.attempt_id, self.roster, survivors
        )
        if signers < len(survivors):
            raise RefusedError("not every client of the sum has signed that it is part of it")
        self._guard.reveal(state.attempt_id, survivors, same=same)
        total = decrypt(state.context, [bytes(part) for part in message.parts[len(survivors) :]])
        if len(total) != length:
            raise RefusedError("the decrypted vector has another length")
        self.holder_state = None
        return self._reply(message, {}, as_bytes(total))

    def _reply(self, to: SignedMessage, facts: Mapping[str, Any], *parts: Part) -> SignedMessage:
        return SignedMessage(to.attempt_id, to.stage, self.client, facts, parts)


def _save(state: KeyHolderState) -> bytes:
    facts = {"cohort": list(state.cohort), "context": state.context.hex()}
    return canonical_json(asdict(state.attempt_id) | facts)


def _load(saved: bytes) -> KeyHolderState:
    record = parse_record(saved, "a saved key-holder", _FIELDS)
    attempt_id = AttemptId.read(record, "a saved key-holder")
    cohort = read_clients(record["cohort"], "its cohort")
    return KeyHolderState(attempt_id, cohort, read_hex(record["context"], "its context"))


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
