"""Clients of secure sums in one process: real messages, and any client may drop out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbb.errors import PrivacyError
from fedbb.secagg.masked.client import MaskedSumClient
from fedbb.secagg.masked.server import MaskedSumServer
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.roster import Roster
from fedbb.secagg.protocol.secure_aggregation import SecureAggregationClient, SumRequest

ENROLMENT = Identity(hashlib.sha256(b"enrolment").digest())
SERVER = Identity(hashlib.sha256(b"server").digest())


def counted(name: str) -> Entropy:
    """Return bytes that look random and are the same each time: a hash of a name and a count."""
    count = 0

    def draw(number: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.shake_256(f"{name} {count}".encode()).digest(number)

    return draw


def identity_of(client: int) -> Identity:
    return Identity(hashlib.sha256(f"client {client}".encode()).digest())


def make_roster(clients: int = 5, **terms: object) -> Roster:
    members = {client: identity_of(client).public for client in range(clients)}
    return Roster(members, SERVER.public, **terms)  # type: ignore[arg-type]


def masked_client(
    client: int, roster: Roster, name: str = "party", **limits: Any
) -> MaskedSumClient:
    entropy = counted(f"{name} {client}")
    journal = MemoryJournal()
    return MaskedSumClient(client, identity_of(client), roster, journal, entropy=entropy, **limits)


def masked_sum(roster: Roster, name: str = "server") -> MaskedSumServer:
    return MaskedSumServer(roster, SERVER, counted(name))


@dataclass(frozen=True, eq=False)
class MemoryJournal:
    """A journal in memory, for clients that live as long as this process."""

    decisions: dict[str, str] = field(default_factory=dict)

    def decided(self) -> list[str]:
        return list(self.decisions)

    def lookup(self, key: str) -> str | None:
        return self.decisions.get(key)

    def record(self, key: str, decision: str) -> str | None:
        before = self.decisions.get(key)
        if before is None:
            self.decisions[key] = decision
        return before


Change = Callable[[str, int, bytes], bytes]


@dataclass
class LocalTransport:
    """A transport that can change the server's messages and keeps all of them.

    `silent` holds (stage, client) whose answer never arrives. From then on the client is in `gone`
    and gets no message either.
    """

    clients: Mapping[int, SecureAggregationClient]
    vectors: Mapping[int, np.ndarray]
    silent: set[tuple[str, int]] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    restart: bool = False
    change: Change = lambda stage, client, message: message
    seen: list[tuple[str, int, bytes, bytes]] = field(default_factory=list)
    refusals: list[tuple[str, int, str]] = field(default_factory=list)

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        for client, message in messages.items():
            if (stage, client) in self.silent:
                self.gone.add(client)
            if client in self.gone:
                continue
            try:
                answer = self.ask(stage, client, self.change(stage, client, message))
            except PrivacyError as error:
                self.refusals.append((stage, client, str(error)))
                continue
            self.seen.append((stage, client, message, answer))
            yield client, answer

    def ask(self, stage: str, client: int, message: bytes) -> bytes:
        own = self.clients[client]
        answer = own.answer(stage, message, lambda: self.vectors[client])
        if self.restart:
            own.restore(own.save())
        return answer


def open_transport(
    clients: int = 5, length: int = 40, name: str = "party", **terms: object
) -> LocalTransport:
    """Return a transport to clients of masked sums, whose vectors are random floats."""
    roster = make_roster(clients, **terms)
    rng = np.random.default_rng(clients)
    vectors = {client: rng.normal(size=length) for client in range(clients)}
    made = {client: masked_client(client, roster, name) for client in range(clients)}
    return LocalTransport(made, vectors)


def request(length: int = 40, number: int = 1, *, whole: bool = False) -> SumRequest:
    return SumRequest("run", number, length, whole)
