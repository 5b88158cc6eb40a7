"""One round in the open: ask the chosen clients, see who counts, weigh them, merge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fedbb.aggregation.weighting import renormalize
from fedbb.errors import QuorumError
from fedbb.methods import Method
from fedbb.records import (
    ClientFailure,
    ClientInfo,
    ClientReport,
    ClientUpdate,
    FloatArray,
    IntArray,
    ModelState,
)
from fedbb.rounds.policy import RoundPolicy
from fedbb.simulation.base import RoundReplies, TrainClients
from fedbb.training.config import TrainJob

ROUND_POLICY = RoundPolicy()


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What a round made of the state, who counted how much, and who did not."""

    state: ModelState
    reports: tuple[ClientReport, ...]
    absences: tuple[ClientFailure, ...] = ()


class FederatedRound(Protocol):
    """How the chosen clients' training becomes the next state."""

    @property
    def clients(self) -> int:
        """How many clients there are to choose from."""
        ...

    def __call__(self, number: int, state: ModelState, chosen: IntArray) -> RoundResult:
        """Return what a round makes of this state."""
        ...


@dataclass(frozen=True, eq=False)
class PlainRound:
    """The server sees each update, weighs it by the clients' cards and merges it."""

    ask: TrainClients
    method: Method
    infos: Sequence[ClientInfo]
    seed: int
    policy: RoundPolicy = ROUND_POLICY

    @property
    def clients(self) -> int:
        """How many clients there are to choose from."""
        return len(self.infos)

    def __call__(self, number: int, state: ModelState, chosen: IntArray) -> RoundResult:
        """Return what a round makes of this state."""
        empty = [
            ClientFailure(int(client), "has no samples")
            for client in chosen
            if self.infos[client].samples == 0
        ]
        able = np.array([client for client in chosen if self.infos[client].samples > 0], dtype=int)
        if len(able) == 0:
            return RoundResult(state, (), tuple(empty))
        turns = able[longest_first(able, self.infos)]
        jobs = [TrainJob(int(client), number, self.seed, state) for client in turns]
        answers = self._ask(jobs)
        shares = self._shares(answers.clients)
        reports: list[ClientReport] = []
        weights = np.array([shares[client] for client in answers.clients])
        merged = self.method.merge(state, _noting(answers.updates, weights, reports), weights)
        reports.sort(key=lambda report: report.client)
        absences = sorted((*empty, *answers.absences), key=lambda absence: absence.client)
        return RoundResult(merged, tuple(reports), tuple(absences))

    @cached_property
    def _weights(self) -> FloatArray:
        return self.method.weighting(self.infos)

    def _ask(self, jobs: Sequence[TrainJob]) -> RoundReplies:
        """Ask until enough answers count, as often as the guard allows."""
        state, number = jobs[0].state, jobs[0].round
        least = self.policy.least(len(jobs))
        for attempt in range(1, self.policy.attempts + 1):
            answers = self.policy.screen(state, self.ask(jobs, attempt))
            if len(answers.clients) >= least:
                return self.policy.select(state, answers)
        told = "; ".join(f"client {a.client}: {a.reason}" for a in answers.absences)
        raise QuorumError(
            f"round {number}: {len(answers.clients)} of {len(jobs)} clients count and {least} are "
            f"needed, after {self.policy.attempts} attempts ({told}); the rounds before it are "
            "kept, and the run can be resumed"
        )

    def _shares(self, clients: Sequence[int]) -> Mapping[int, float]:
        """Return how much each of these counts; together they count one."""
        present = np.sort(np.array(clients))
        shares = renormalize(self._weights[present], self.policy.max_weight)
        return dict(zip(present.tolist(), shares.tolist(), strict=True))


def longest_first(chosen: IntArray, infos: Sequence[ClientInfo]) -> IntArray:
    """Return the places of the chosen clients by falling size, equal ones by client.

    Whoever trains long begins first, so that no core idles at the end of a round. Updates are
    merged in this order too, since float sums depend on theirs: it follows from the cards alone,
    and few updates come before their turn.
    """
    return np.argsort([-infos[client].samples for client in chosen], kind="stable")


def _noting(
    updates: Iterable[ClientUpdate], weights: FloatArray, reports: list[ClientReport]
) -> Iterator[ClientUpdate]:
    """Pass updates on and keep of each what a record needs, which is not its model."""
    for update, weight in zip(updates, weights.tolist(), strict=True):
        reports.append(
            ClientReport(update.client, weight, update.steps, update.train_loss, update.seconds)
        )
        yield update
