"""Parties around one table: real letters, and anybody can fall silent at any stage."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedbb.errors import PrivacyError
from fedbb.secagg.masked.client import MaskedParty
from fedbb.secagg.masked.server import MaskedSum
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.journal import MemoryJournal
from fedbb.secagg.protocol.roster import Roster
from fedbb.secagg.secure_aggregation import Party, Question

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


def masked_party(client: int, roster: Roster, name: str = "party") -> MaskedParty:
    entropy = counted(f"{name} {client}")
    return MaskedParty(client, identity_of(client), roster, MemoryJournal(), entropy=entropy)


def masked_sum(roster: Roster, name: str = "server") -> MaskedSum:
    return MaskedSum(roster, SERVER, counted(name))


Change = Callable[[str, int, bytes], bytes]


@dataclass
class Table:
    """A wire on which the server's letters can be changed, and all that passes is kept.

    `silent` holds (stage, client) whose answer never comes; with `gone` the party does not get the
    letter either, and stays away from then on.
    """

    parties: Mapping[int, Party]
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
        party = self.parties[client]
        answer = party.answer(stage, message, lambda: self.vectors[client])
        if self.restart:
            party.restore(party.save())  # type: ignore[attr-defined]
        return answer


def sit_down(clients: int = 5, length: int = 40, name: str = "party", **terms: object) -> Table:
    """Return a table of masked parties whose vectors are random floats."""
    roster = make_roster(clients, **terms)
    rng = np.random.default_rng(clients)
    vectors = {client: rng.normal(size=length) for client in range(clients)}
    return Table({client: masked_party(client, roster, name) for client in range(clients)}, vectors)


def about(length: int = 40, number: int = 1, *, whole: bool = False) -> Question:
    return Question("run", number, length, whole)
