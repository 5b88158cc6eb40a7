"""The server: choose, train, weigh, merge, score; a generator whose consumer saves or stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedbb.aggregation.weighting import renormalize
from fedbb.engine.base import Engine
from fedbb.errors import DivergedError
from fedbb.evaluation.metrics import Scores
from fedbb.methods import Method
from fedbb.records import (
    ClientCard,
    ClientReport,
    ClientUpdate,
    FloatArray,
    IntArray,
    ModelState,
)
from fedbb.rng import stream
from fedbb.training.plan import Job

Score = Callable[[ModelState], Mapping[str, Scores]]


@dataclass(frozen=True)
class Schedule:
    """How many rounds, what part of the clients in each, and the seed all streams come from."""

    rounds: int
    participation: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Start:
    """Where a run begins, or goes on: the state after so many rounds."""

    state: ModelState
    rounds_done: int = 0


@dataclass(frozen=True, eq=False)
class Round:
    """A finished round: the new state, who trained and counted how much, and its scores.

    `reports` are in client order.
    """

    number: int
    state: ModelState
    reports: tuple[ClientReport, ...]
    scores: Mapping[str, Scores]
    train_seconds: float
    score_seconds: float


def federate(
    engine: Engine, method: Method, start: Start, schedule: Schedule, score: Score
) -> Iterator[Round]:
    """Yield the rounds from `start` to the end of the schedule."""
    cards = engine.introduce()
    weights = method.weighting(cards)
    state = start.state
    for number in range(start.rounds_done + 1, schedule.rounds + 1):
        began = time.perf_counter()
        chosen = choose(len(cards), schedule, number)
        turns = longest_first(chosen, cards)
        shares = renormalize(weights[chosen])[turns]
        jobs = [Job(int(client), number, schedule.seed, state) for client in chosen[turns]]
        reports: list[ClientReport] = []
        state = method.merge(state, _noting(engine.train(jobs), shares, reports), shares)
        trained = time.perf_counter()
        scores = _score(score, state, number)
        scored = time.perf_counter()
        reports.sort(key=lambda report: report.client)
        yield Round(number, state, tuple(reports), scores, trained - began, scored - trained)


def chosen_number(clients: int, participation: float) -> int:
    """Return how many clients train in a round."""
    return max(1, round(participation * clients))


def longest_first(chosen: IntArray, cards: Sequence[ClientCard]) -> IntArray:
    """Return the places of the chosen clients by falling size, equal ones by client.

    Whoever trains long begins first, so that no core idles at the end of a round. Updates are
    merged in this order too, since float sums depend on theirs: it follows from the cards alone,
    and few updates come before their turn.
    """
    return np.argsort([-cards[client].samples for client in chosen], kind="stable")


def _noting(
    updates: Iterable[ClientUpdate], weights: FloatArray, reports: list[ClientReport]
) -> Iterator[ClientUpdate]:
    """Pass updates on and keep of each what a record needs, which is not its model."""
    for update, weight in zip(updates, weights.tolist(), strict=True):
        reports.append(
            ClientReport(update.client, weight, update.steps, update.train_loss, update.seconds)
        )
        yield update


def choose(clients: int, schedule: Schedule, number: int) -> IntArray:
    """Return the clients of a round in rising order, drawn without replacement."""
    wanted = chosen_number(clients, schedule.participation)
    if wanted >= clients:
        return np.arange(clients)
    return np.sort(stream(schedule.seed, "choose", number).choice(clients, wanted, replace=False))


def _score(score: Score, state: ModelState, number: int) -> Mapping[str, Scores]:
    try:
        return score(state)
    except FloatingPointError as error:
        raise DivergedError(f"round {number}: the merged model {error}") from error
