"""Sums of integers under BFV, the sides of client and server.

One of the clients draws the keys. All clients encrypt for it, the server adds the ciphertexts, and
the key-holder decrypts the sum and nothing else. This holds as long as server and key-holder do not
collude and the server sends it the sum: a key-holder cannot distinguish a sum from a single vector.
Therefore models are summed under masks, and statistics too unless a recipe says `bfv`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

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
from fedbb.secagg.primitives.fixed_point import WORD, RingArray, as_bytes
from fedbb.secagg.protocol.canonical import (
    canonical_json,
    parse_record,
    read_clients,
    read_hex,
    read_integer,
)
from fedbb.secagg.protocol.messages import (
    AttemptId,
    SignedMessage,
    check_group,
    sign_message,
    verify_agreements,
    verify_message,
)
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.protocol.secure_aggregation import (
    CohortChangedError,
    StageExchange,
    SumClient,
    SumRequest,
    SumResult,
    SumServer,
    Transport,
    Values,
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
class BfvSumClient(SumClient):
    """One client in sums under BFV."""

    holder_state: KeyHolderState | None = field(default=None, init=False)

    def answer(self, stage: str, data: bytes, values: Values, view: str = "") -> bytes:
        """Return the answer to the message of a stage, or refuse it with a `PrivacyError`."""
        if stage not in STAGES:
            raise RefusedError(f"a sum under BFV has the stages {', '.join(STAGES)}, no others")
        message = verify_message(data, self.roster, stage, AGGREGATOR)
        self._check_run(message.attempt_id)
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
        cohort = self._check_cohort(message)
        secret, public = draw_context()
        self.holder_state = KeyHolderState(message.attempt_id, cohort, secret)
        return self._reply(message, {"cohort": list(cohort)}, public)

    def _encrypt(self, message: SignedMessage, values: Values) -> SignedMessage:
        """Return this client's numbers, encrypted for the key-holder."""
        cohort = self._check_cohort(message)
        if len(message.parts) != 1:
            raise RefusedError("a sum under BFV has one key-holder")
        context = verify_message(message.parts[0], self.roster, "context", None, message.attempt_id)
        if context.sender not in cohort or context.clients("cohort") != cohort:
            raise RefusedError("the key-holder has keys for another cohort")
        if len(context.parts) != 1:
            raise RefusedError("a key-holder gives one context")
        self._guard.begin(message.attempt_id)
        vector = self._vector(message, values, len(cohort), whole=True)
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


def _save(state: KeyHolderState) -> bytes:
    facts = {"cohort": list(state.cohort), "context": state.context.hex()}
    return canonical_json(asdict(state.attempt_id) | facts)


def _load(saved: bytes) -> KeyHolderState:
    record = parse_record(saved, "a saved key-holder", _FIELDS)
    attempt_id = AttemptId.read(record, "a saved key-holder")
    cohort = read_clients(record["cohort"], "its cohort")
    return KeyHolderState(attempt_id, cohort, read_hex(record["context"], "its context"))


class BfvSumServer(SumServer):
    """Sums integers; the first client of the cohort that answers holds the keys."""

    def __call__(
        self, request: SumRequest, clients: Sequence[int], transport: Transport
    ) -> SumResult:
        """Return the sum over those of the clients who stay to the end."""
        if not request.whole or len(set(clients)) > MOST_CLIENTS:
            raise PrivacyError(f"BFV sums integers of up to {MOST_CLIENTS} clients")
        return super().__call__(request, clients, transport)

    def sum_once(
        self, request: SumRequest, cohort: tuple[int, ...], exchange: StageExchange
    ) -> tuple[RingArray, Sequence[int]]:
        """Return the sum of one attempt and its clients."""
        exchange.require("context", cohort, self.roster.least)
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
