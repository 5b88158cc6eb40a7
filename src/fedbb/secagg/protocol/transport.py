"""How the messages of one stage travel between the server and the clients of a secure sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedbb.errors import RefusedError, TooFewError
from fedbb.records import ClientFailure
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.protocol.messages import (
    AttemptId,
    Part,
    SignedMessage,
    sign_message,
    verify_message,
)
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
    """The server's side of the stages of one attempt: what it sends, and which clients failed."""

    roster: Roster
    identity: Identity
    attempt_id: AttemptId
    transport: Transport
    failures: list[ClientFailure] = field(default_factory=list)

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
            raise TooFewError(
                f"{self.attempt_id}: {len(clients)} clients are left after stage {stage} of a "
                f"secure sum and {needed} are needed ({reasons}); nothing was revealed"
            )
