"""The server: choose, train, weigh, merge, score; a generator whose consumer saves or stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedbb.aggregation.weighting import renormalize
from fedbb.engine.base import Engine
from fedbb.errors import DivergedError
from fedbb.evaluation.metrics import Scores
from fedbb.methods import Method
from fedbb.records import ClientUpdate, FloatArray, IntArray, ModelState
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
    """A finished round: the new state, who trained and counted how much, and its scores."""

    number: int
    state: ModelState
    weights: FloatArray
    updates: tuple[ClientUpdate, ...]
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
        jobs = [Job(int(client), number, schedule.seed, state) for client in chosen]
        # Float sums depend on their order: merge by client, whoever answered first.
        updates = sorted(engine.train(jobs), key=lambda update: update.client)
        shares = renormalize(weights[chosen])
        state = method.merge(state, updates, shares)
        trained = time.perf_counter()
        scores = _score(score, state, number)
        scored = time.perf_counter()
        yield Round(
            number, state, shares, tuple(updates), scores, trained - began, scored - trained
        )


def choose(clients: int, schedule: Schedule, number: int) -> IntArray:
    """Return the clients of a round in rising order, drawn without replacement."""
    wanted = max(1, round(schedule.participation * clients))
    if wanted >= clients:
        return np.arange(clients)
    return np.sort(stream(schedule.seed, "choose", number).choice(clients, wanted, replace=False))


def _score(score: Score, state: ModelState, number: int) -> Mapping[str, Scores]:
    try:
        return score(state)
    except FloatingPointError as error:
        raise DivergedError(f"round {number}: the merged model {error}") from error
