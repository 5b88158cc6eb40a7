"""Parties that live in this process: an engine's clients, each masking what it has trained."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from fedbb.errors import DivergedError, PrivacyError
from fedbb.records import ClientUpdate, FloatArray, IntArray, ModelState
from fedbb.secagg.member import Member
from fedbb.secagg.secure_aggregation import Party
from fedbb.secagg.statistics import Sums
from fedbb.secagg.statistics_round import COMMIT, TOLD, Pledge
from fedbb.simulation.base import Engine
from fedbb.training.config import TrainJob

LOG = logging.getLogger("fedbb.parties")


class DatedEngine(Engine, Protocol):
    """An engine that tells the round from which it takes each client's memory."""

    @property
    def state_rounds(self) -> dict[int, int]:
        """The round each client's memory is from."""
        ...


@dataclass(frozen=True, eq=False)
class Seat:
    """A simulated client with all it keeps to itself."""

    member: Member
    party: Party
    pledge: Pledge


@dataclass(frozen=True, eq=False)
class StatisticsWire:
    """The way to simulated clients before round 1; `confirmed` fills with the sums they accept."""

    seats: Mapping[int, Seat]
    confirmed: dict[int, Sums] = field(default_factory=dict)

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the clients' answers; whoever refuses gives none."""
        for client in sorted(messages):
            try:
                answer = self._answer(client, stage, messages[client])
            except PrivacyError as error:
                _tell(client, stage, error)
                continue
            yield client, answer

    def _answer(self, client: int, stage: str, message: bytes) -> bytes:
        seat = self.seats[client]
        if stage == COMMIT:
            return seat.pledge.commit(message)
        if stage == TOLD:
            sums, answer = seat.pledge.confirm(message, seat.member.agreement.terms)
            self.confirmed[client] = sums
            return answer
        return seat.party.answer(stage, message, lambda: seat.pledge.declared)


@dataclass(eq=False)
class TrainingWire:
    """The way to simulated clients in a round: they train when their vectors are asked for.

    Each masks its vector as soon as it has trained, so that no two models are held. They come in
    the order of their numbers, for the server does not know who is large.
    """

    engine: DatedEngine
    seats: Mapping[int, Seat]
    sums: Mapping[int, Sums]
    state: ModelState
    number: int
    seed: int

    def __post_init__(self) -> None:
        self._memories = dict(self.engine.state_rounds)

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the clients' answers; whoever refuses gives none."""
        clients = sorted(messages)
        training = _Training(self, clients)
        for client in clients:
            party = self.seats[client].party
            try:
                answer = party.answer(stage, messages[client], partial(training.part, client))
            except PrivacyError as error:
                _tell(client, stage, error)
                continue
            yield client, answer
        training.finish()

    def jobs(self, clients: Sequence[int]) -> list[TrainJob]:
        """Return the work of those of the clients who have something to train on."""
        return [
            TrainJob(client, self.number, self.seed, self.state)
            for client in clients
            if self.seats[client].member.info.samples > 0
        ]

    def train(self, clients: Sequence[int]) -> Iterator[ClientUpdate]:
        """Yield the updates of these clients, who begin with the memories of the last round."""
        # An attempt that is repeated must not begin with what the first one left behind.
        self.engine.state_rounds.clear()
        self.engine.state_rounds.update(self._memories)
        jobs = self.jobs(clients)
        try:
            yield from self.engine.train(jobs) if jobs else ()
        except DivergedError as error:
            # Its message tells a client's figures.
            raise DivergedError(
                f"round {self.number}: a client's training met a number that is not finite; "
                "a lower local.lr or method mu may help"
            ) from error


def _tell(client: int, stage: str, error: PrivacyError) -> None:
    """Log at the client's side why it gives no answer; the server hears nothing of it."""
    LOG.warning("client %d refuses stage %s: %s", client, stage, error)


class _Training:
    """The training of one stage, begun when the first vector is asked for."""

    def __init__(self, wire: TrainingWire, clients: Sequence[int]) -> None:
        self.wire, self.clients = wire, clients
        self.updates: Iterator[ClientUpdate] | None = None

    def part(self, client: int) -> FloatArray | IntArray:
        """Return a client's part in the sum."""
        seat = self.wire.seats[client]
        update = self._take(client) if seat.member.info.samples > 0 else None
        return seat.member.part(self.wire.state, update, self.wire.sums[client])

    def finish(self) -> None:
        """Let clients that refused to answer end their work: an engine is not left half-way."""
        for _ in self.updates or ():
            pass

    def _take(self, client: int) -> ClientUpdate:
        if self.updates is None:
            self.updates = self.wire.train(self.clients)
        return next(update for update in self.updates if update.client == client)
