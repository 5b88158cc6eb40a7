"""Secure aggregation: its interface, the exchange of stages, and what all schemes share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from fedbb.errors import PrivacyError, RefusedError, TooFewError
from fedbb.records import ClientFailure, FloatArray, IntArray
from fedbb.secagg.primitives.fixed_point import RingArray, from_ring, to_ring
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.canonical import read_integer
from fedbb.secagg.protocol.messages import (
    AttemptId,
    Part,
    SignedMessage,
    check_group,
    sign_message,
    verify_message,
)
from fedbb.secagg.protocol.replay_guard import Journal, ReplayGuard, RunLimit
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster


class Transport(Protocol):
    """Carries bytes without reading or changing them; a client that does not answer dropped out.

    At the other end, each message goes to `answer` of the client's side. A client that refuses
    (any `PrivacyError`) gives no answer. An attempt begins with a stage that every client starts
    afresh, so that the transport need not distinguish attempts.
    """

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Send each client its message; yield (client, answer) as answers arrive.

        The iterator ends when no further answer is accepted. Answers may be large: the server
        keeps none when it asks for the next one.
        """
        ...


@dataclass(frozen=True)
class TranscriptEntry:
    """A message between the server and a client, in direction `to` the client or `from` it."""

    direction: str
    client: int
    stage: str
    message: bytes


Recorder = Callable[[TranscriptEntry], None]


@dataclass(frozen=True, eq=False)
class RecordingTransport:
    """A transport that shows every byte the server sends or receives to a recorder."""

    transport: Transport
    record: Recorder

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Carry the messages of a stage and record them and the answers."""
        for client, message in messages.items():
            self.record(TranscriptEntry("to", client, stage, message))
        for client, answer in self.transport.exchange(stage, messages):
            self.record(TranscriptEntry("from", client, stage, answer))
            yield client, answer


Accept = Callable[[SignedMessage, bytes], None]
"""Accepts a verified answer (also as bytes, to be shown to other clients), or refuses it."""


@dataclass(eq=False)
class StageExchange:
    """The server's side of the stages of one attempt: what it sends, and which clients failed.

    `receipt` is what a key-holder signed about the sum, if the scheme has one; `false_shares` names
    clients that gave a false share of a secret and did not prevent the sum.
    """

    roster: Roster
    identity: Identity
    attempt_id: AttemptId
    transport: Transport
    failures: list[ClientFailure] = field(default_factory=list)
    receipt: bytes = b""
    false_shares: list[ClientFailure] = field(default_factory=list)

    def broadcast(
        self,
        stage: str,
        clients: Iterable[int],
        accept: Accept,
        facts: Mapping[str, Any],
        parts: Sequence[Part] = (),
    ) -> tuple[int, ...]:
        """Send these clients the same message; return whose answers were accepted, ascending."""
        message = self.message(stage, facts, parts)
        return self.collect_stage(stage, dict.fromkeys(clients, message), accept)

    def collect_stage(
        self, stage: str, messages: Mapping[int, bytes], accept: Accept
    ) -> tuple[int, ...]:
        """Send each client its message; return whose answers were accepted, in ascending order."""
        accepted: set[int] = set()
        refused: dict[int, str] = {}
        for client, data in self.transport.exchange(stage, messages):
            if client in messages and client not in accepted and client not in refused:
                try:
                    accept(verify_message(data, self.roster, stage, client, self.attempt_id), data)
                    accepted.add(client)
                except RefusedError as error:
                    refused[client] = f"its answer in stage {stage} was refused: {error}"
        silent = f"gave no answer in stage {stage}"
        self.failures += [
            ClientFailure(client, refused.get(client, silent))
            for client in sorted(messages.keys() - accepted)
        ]
        return tuple(sorted(accepted))

    def message(self, stage: str, facts: Mapping[str, Any], parts: Sequence[Part] = ()) -> bytes:
        """Return a message of the server, signed."""
        message = SignedMessage(self.attempt_id, stage, AGGREGATOR, facts, parts)
        return sign_message(message, self.roster, self.identity)

    def require(self, stage: str, clients: Sequence[int], needed: int) -> None:
        """Raise `TooFewError` if too few clients are left after a stage."""
        if len(clients) < needed:
            reasons = "; ".join(f"client {gone.client} {gone.reason}" for gone in self.failures)
            reasons = f" ({reasons})" if reasons else ""
            raise TooFewError(
                f"{self.attempt_id}: {len(clients)} clients are left after stage {stage} of a "
                f"secure sum and {needed} are needed{reasons}; nothing was revealed"
            )


Values = Callable[[], FloatArray | IntArray]
"""Computes a client's vector."""


@dataclass(frozen=True)
class SumRequest:
    """What is summed: one vector from each client, in a round of a run.

    In a round of a run a client gives one vector, and helps to unmask it over one set of clients
    only. A sum outside the rounds has a number of its own, such as 0 for the statistics before
    round 1.

    Args:
        run: the name of the run.
        round: the number of the round, from 0.
        length: how many numbers each vector has.
        whole: the numbers are integers (int64); otherwise float64, summed in fixed point.
        view: the digest of what the clients compute their vectors from, see `fedbb.secagg.view`.
    """

    run: str
    round: int
    length: int
    whole: bool = False
    view: str = ""

    def __post_init__(self) -> None:
        if self.length < 1 or self.round < 0:
            raise PrivacyError("a sum needs vectors of at least one number, in a round from 0")


@dataclass(frozen=True, eq=False)
class SumResult:
    """The result of a secure sum.

    Args:
        values: the sum; int64 if the request was for integers, otherwise float64.
        clients: whose vectors it includes, in ascending order.
        failures: the other clients, and why they are missing.
        attempts: how many attempts with fresh keys it took.
        receipt: what a key-holder signed about the sum, if the scheme has one.
        false_shares: clients that gave a false share of a secret, which was not used.
    """

    values: FloatArray | IntArray
    clients: tuple[int, ...]
    failures: tuple[ClientFailure, ...] = ()
    attempts: int = 1
    receipt: bytes = b""
    false_shares: tuple[ClientFailure, ...] = ()


class SecureAggregation(Protocol):
    """The server's side: it learns the sum and its clients, and nothing else of their vectors."""

    def __call__(
        self, request: SumRequest, clients: Sequence[int], transport: Transport
    ) -> SumResult:
        """Return the sum over those of the clients who stay to the end.

        Raises `TooFewError` if they are too few. Then nothing was revealed, and the same request
        may be repeated, with the same or with other clients.
        """
        ...


class SecureAggregationClient(Protocol):
    """The client's side, one stage after the other; it serves every attempt of every sum."""

    def answer(self, stage: str, data: bytes, values: Values, view: str = "") -> bytes:
        """Return the answer to the message of a stage, or refuse it with a `PrivacyError`.

        Args:
            stage: the stage.
            data: the message.
            values: called once, in the stage that needs the vector (`masked`, `encrypt`).
            view: the digest of what this client received to compute its vector from.

        Returns:
            The answer, signed.
        """
        ...

    def save(self) -> bytes:
        """Return the state that the next stage needs. It is secret."""
        ...

    def restore(self, saved: bytes) -> None:
        """Continue from a saved state, possibly in another process."""
        ...


class CohortChangedError(Exception):
    """Clients dropped out so early that the attempt starts again with the remaining ones."""

    def __init__(self, remaining: tuple[int, ...]) -> None:
        super().__init__(remaining)
        self.remaining = remaining


@dataclass(frozen=True, eq=False)
class SumServer(ABC):
    """The server's side that all schemes share.

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

    @abstractmethod
    def sum_once(
        self, request: SumRequest, cohort: tuple[int, ...], exchange: StageExchange
    ) -> tuple[RingArray, Sequence[int]]:
        """Return the sum of one attempt with one cohort and its clients.

        Raises:
            CohortChangedError: the attempt starts again with the remaining clients.
        """

    def __call__(
        self, request: SumRequest, clients: Sequence[int], transport: Transport
    ) -> SumResult:
        """Return the sum over those of the clients who stay to the end.

        Each attempt has fresh keys, and the cohort shrinks until all of it stays.
        """
        cohort = tuple(sorted(set(clients)))
        for client in cohort:
            self.roster.key_of(client)
        failures: list[ClientFailure] = []
        for attempt in count(1):
            attempt_id = AttemptId.draw(request.run, request.round, attempt, self.entropy)
            exchange = StageExchange(self.roster, self.identity, attempt_id, transport, failures)
            try:
                total, survivors = self.sum_once(request, cohort, exchange)
                break
            except CohortChangedError as changed:
                cohort = changed.remaining
        values = from_ring(total, whole=request.whole, scale_bits=self.roster.scale_bits)
        # A client that dropped out after its vector was added is part of the sum.
        missing = sorted(
            (gone for gone in failures if gone.client not in survivors),
            key=lambda gone: gone.client,
        )
        return SumResult(
            values,
            tuple(survivors),
            tuple(missing),
            attempt,
            exchange.receipt,
            tuple(exchange.false_shares),
        )


@dataclass(eq=False, repr=False)
class SumClient:
    """The client's side that all schemes share.

    Args:
        client: its number in the roster.
        identity: its private key.
        roster: the roster pinned at this client.
        journal: where its decisions are kept.
        run: the only run it takes part in; None for any.
        rounds: how many rounds the agreed recipe has; None for any number.
        runs: counts the runs that it takes part in; None for any number.
    """

    client: int
    identity: Identity
    roster: Roster
    journal: Journal
    run: str | None = None
    rounds: int | None = None
    runs: RunLimit | None = None

    def __post_init__(self) -> None:
        self.roster.check_identity(self.client, self.identity)
        self._guard = ReplayGuard(self.client, self.identity, self.journal, self.rounds, self.runs)

    def _check_run(self, attempt_id: AttemptId) -> None:
        if self.run is not None and attempt_id.run != self.run:
            raise RefusedError(f"client {self.client} takes part in {self.run}, in no other run")

    def _check_cohort(self, message: SignedMessage) -> tuple[int, ...]:
        """Return the cohort of a message; refuse one that is too small or not in the roster."""
        cohort = message.clients("cohort")
        check_group(self.client, cohort, self.roster.members.keys(), self.roster.least)
        return cohort

    def _vector(
        self, message: SignedMessage, values: Values, cohort: int, *, whole: bool
    ) -> RingArray:
        """Return this client's vector, which must have the length that the message requests."""
        length = read_integer(message.facts.get("length"), "the vector's length", 1)
        vector = to_ring(values(), cohort=cohort, whole=whole, scale_bits=self.roster.scale_bits)
        if len(vector) != length:
            raise RefusedError(f"a vector of {length} numbers is requested, not of {len(vector)}")
        return vector

    def _reply(self, to: SignedMessage, facts: Mapping[str, Any], *parts: Part) -> SignedMessage:
        return SignedMessage(to.attempt_id, to.stage, self.client, facts, parts)
