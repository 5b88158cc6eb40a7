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
from fedbb.records import ClientFailure, ClientUpdate, ModelState
from fedbb.rounds.filters import RoundReplies
from fedbb.rounds.policy import RoundPolicy
from fedbb.rounds.replies import Expected, Inbox
from fedbb.simulation.pool.protocol import pack_update as park_update
from fedbb.simulation.pool.protocol import unpack_update as fetch_update
from fedbb.simulation.pool.reorder_buffer import SpillBuffer
from fedbb.training.config import LocalConfig, TrainJob

log = logging.getLogger("fedbb")

AT_HAND = 4
"""Answers that wait for the others in memory; the rest wait on disk."""


@dataclass(eq=False)
class Sites:
    """Has jobs done by sites and takes only answers that can be true.

    `run` names the run at the sites, which keep their client state under it. `state_rounds` holds
    the round of each client's state, as far as the server accepted its reply. `patience` is how
    many seconds a repeated round waits for clients that are away.
    """

    post: Post
    roll: Roll
    plan: LocalConfig
    defense: RoundPolicy
    run: str
    patience: float = 60.0
    state_rounds: dict[int, int] = field(default_factory=dict)
    _before: tuple[int, dict[int, int]] = (0, {})

    def ask(self, jobs: Sequence[TrainJob], attempt: int) -> RoundReplies:
        """Return the answers to these jobs that came in time and hold."""
        self._go_back(jobs[0].round)
        nodes = self.roll.find([job.client for job in jobs], self.patience if attempt > 1 else 0.0)
        absent = {job.client: "not connected" for job in jobs if job.client not in nodes}
        asked = {job.client: job for job in jobs if job.client in nodes}
        reorder_buffer = SpillBuffer(AT_HAND)
        inbox = Inbox({client: self._expect(job, attempt) for client, job in asked.items()})
        for client, outcome in self._send(list(asked.values()), nodes, attempt):
            try:
                update = self._take(inbox, client, outcome)
            except ReplyError as error:
                if client in reorder_buffer:
                    log.warning("%s", error)
                else:
                    absent.setdefault(client, str(error))
            else:
                reorder_buffer.put(client, park_update(update, kept=False))
        for client, reason in absent.items():
            log.warning("round %d: client %d is left out: %s", jobs[0].round, client, reason)
        present = tuple(job.client for job in jobs if job.client in reorder_buffer)
        absences = tuple(ClientFailure(client, reason) for client, reason in absent.items())
        return RoundReplies(present, _fetch(reorder_buffer, present), absences)

    def score(self, state: ModelState) -> dict[str, Scores]:
        """Return the scores of a state, pooled over the sites that answered."""
        outline = self.roll.outline
        assert outline is not None
        clients = sorted(self.roll.infos)
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
            self._before = (number, dict(self.state_rounds))
        self.state_rounds.clear()
        self.state_rounds.update(self._before[1])

    def _expect(self, job: TrainJob, attempt: int) -> Expected:
        # Under "clip" whoever goes too far is drawn back and not refused.
        bound = None if self.defense.rule == "clip" else self.defense.max_norm
        info = self.roll.infos[job.client]
        return Expected(job.state, info, self.plan, job.round, attempt, bound)

    def _send(
        self, jobs: Sequence[TrainJob], nodes: dict[int, int], attempt: int
    ) -> Iterator[tuple[int, RecordDict | Failure]]:
        if not jobs:
            return
        state, number = pack_state(jobs[0].state), jobs[0].round
        letters = {
            nodes[job.client]: pack_order(
                Order(job, attempt, self.run, self.state_rounds.get(job.client)), state
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
            self.state_rounds[client] = number

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


def _fetch(reorder_buffer: SpillBuffer, clients: Sequence[int]) -> Iterator[ClientUpdate]:
    with reorder_buffer:
        for client in clients:
            update, _ = fetch_update(reorder_buffer.take(client))
            yield update
