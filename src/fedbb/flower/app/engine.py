"""The engine on Flower: clients are sites behind a grid, and any of them may fail at any time."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flwr.app import RecordDict

from fedbb.errors import QuorumError, ReplyError
from fedbb.evaluation.metrics import Scores
from fedbb.flower.app.node_registry import Roll
from fedbb.flower.app.pooling import pool_scores
from fedbb.flower.app.serde import (
    STATE,
    Answered,
    Order,
    pack_order,
    pack_state,
    unpack_scores,
    unpack_update,
)
from fedbb.flower.app.transport import Failure, Post
from fedbb.recipes.spec import DefenseSpec
from fedbb.records import Absence, ClientUpdate, ModelState
from fedbb.rounds.replies import Expected, Inbox
from fedbb.simulation.base import Answers
from fedbb.simulation.pool.protocol import pack_update as park_update
from fedbb.simulation.pool.protocol import unpack_update as fetch_update
from fedbb.simulation.pool.reorder_buffer import Parking
from fedbb.training.config import Job, LocalPlan

log = logging.getLogger("fedbb")

AT_HAND = 4
"""Answers that wait for the others in memory; the rest wait on disk."""


@dataclass(eq=False)
class Sites:
    """Has jobs done by sites and takes only answers that can be true.

    `run` names the run at the sites, which keep their memories under it. `dated` tells the round
    each client's memory is from, as far as the server took its answer. `patience` is for how many
    seconds a round that is tried again waits for clients that are away.
    """

    post: Post
    roll: Roll
    plan: LocalPlan
    defense: DefenseSpec
    run: str
    patience: float = 60.0
    dated: dict[int, int] = field(default_factory=dict)
    _before: tuple[int, dict[int, int]] = (0, {})

    def ask(self, jobs: Sequence[Job], attempt: int) -> Answers:
        """Return the answers to these jobs that came in time and hold."""
        self._go_back(jobs[0].round)
        nodes = self.roll.find([job.client for job in jobs], self.patience if attempt > 1 else 0.0)
        absent = {job.client: "not connected" for job in jobs if job.client not in nodes}
        asked = {job.client: job for job in jobs if job.client in nodes}
        parking = Parking(AT_HAND)
        inbox = Inbox({client: self._expect(job, attempt) for client, job in asked.items()})
        for client, outcome in self._send(list(asked.values()), nodes, attempt):
            try:
                update = self._take(inbox, client, outcome)
            except ReplyError as error:
                if client in parking:
                    log.warning("%s", error)
                else:
                    absent.setdefault(client, str(error))
            else:
                parking.put(client, park_update(update, kept=False))
        for client, reason in absent.items():
            log.warning("round %d: client %d is left out: %s", jobs[0].round, client, reason)
        present = tuple(job.client for job in jobs if job.client in parking)
        absences = tuple(Absence(client, reason) for client, reason in absent.items())
        return Answers(present, _fetch(parking, present), absences)

    def score(self, state: ModelState) -> dict[str, Scores]:
        """Return the scores of a state, pooled over the sites that answered."""
        outline = self.roll.outline
        assert outline is not None
        clients = sorted(self.roll.cards)
        least = max(1, math.ceil(self.defense.quorum * len(clients)))
        for attempt in range(1, self.defense.attempts + 1):
            nodes = self.roll.find(clients, self.patience if attempt > 1 else 0.0)
            found = dict(self._scores(state, nodes, len(outline.classes)))
            if len(found) >= least:
                ordered = [found[client] for client in sorted(found)]
                return pool_scores(ordered, outline.task)
        raise QuorumError(
            f"{len(found)} of {len(clients)} sites scored the model and {least} are needed, after "
            f"{self.defense.attempts} attempts"
        )

    def _go_back(self, number: int) -> None:
        """Let every attempt at a round start from the memories that the round began with."""
        if self._before[0] != number:
            self._before = (number, dict(self.dated))
        self.dated.clear()
        self.dated.update(self._before[1])

    def _expect(self, job: Job, attempt: int) -> Expected:
        # Under "clip" whoever goes too far is drawn back and not refused.
        bound = None if self.defense.rule == "clip" else self.defense.max_norm
        card = self.roll.cards[job.client]
        return Expected(job.state, card, self.plan, job.round, attempt, bound)

    def _send(
        self, jobs: Sequence[Job], nodes: dict[int, int], attempt: int
    ) -> Iterator[tuple[int, RecordDict | Failure]]:
        if not jobs:
            return
        state, number = pack_state(jobs[0].state), jobs[0].round
        letters = {
            nodes[job.client]: pack_order(
                Order(job, attempt, self.run, self.dated.get(job.client)), state
            )
            for job in jobs
        }
        clients = {node: client for client, node in nodes.items()}
        what = f"round {number}" if attempt == 1 else f"round {number}, attempt {attempt}"
        for node, outcome in self.post.exchange("train", letters, self.defense.deadline, what):
            yield clients[node], outcome

    def _take(self, inbox: Inbox, client: int, outcome: RecordDict | Failure) -> ClientUpdate:
        if isinstance(outcome, Failure):
            raise ReplyError(outcome.reason)
        expected = inbox.expected[client]
        try:
            answered = unpack_update(outcome)
        except ReplyError as error:
            raise ReplyError(f"{expected.where}: {error}") from error
        update = inbox.take(client, answered.reply)
        self._note_memory(client, expected.round, answered)
        return update

    def _note_memory(self, client: int, number: int, answered: Answered) -> None:
        if answered.forgot:
            log.warning(
                "round %d: client %d had lost its memory of round %s and trained without",
                number,
                client,
                self._before[1].get(client),
            )
        if answered.kept:
            self.dated[client] = number

    def _scores(
        self, state: ModelState, nodes: dict[int, int], classes: int
    ) -> Iterator[tuple[int, dict[str, Scores]]]:
        content = RecordDict({STATE: pack_state(state)})
        letters = dict.fromkeys(nodes.values(), content)
        clients = {node: client for client, node in nodes.items()}
        for node, outcome in self.post.exchange(
            "evaluate", letters, self.defense.deadline, "scoring"
        ):
            try:
                if isinstance(outcome, Failure):
                    raise ReplyError(outcome.reason)
                yield clients[node], unpack_scores(outcome, classes)
            except ReplyError as error:
                log.warning("scores of client %d are left out: %s", clients[node], error)


def _fetch(parking: Parking, clients: Sequence[int]) -> Iterator[ClientUpdate]:
    with parking:
        for client in clients:
            update, _ = fetch_update(parking.take(client))
            yield update
