"""The server: choose, join, score; a generator whose consumer saves or stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbb._util.constraints import STRICT_TABLE, Count, Fraction
from fedbb.errors import DivergedError
from fedbb.evaluation.metrics import Scores
from fedbb.methods import Method
from fedbb.records import ClientReport, IntArray, ModelState
from fedbb.rng import stream
from fedbb.rounds.round import FederatedRound, PlainRound, RoundResult
from fedbb.simulation.base import Engine, train_all

Score = Callable[[ModelState], Mapping[str, Scores]]


@dataclass(frozen=True)
class Schedule:
    """The rounds of a run: the section `rounds` of a recipe.

    Attributes:
        number: Rounds in all.
        participation: Fraction of the clients that train in a round; at least one does.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    number: Count = 10
    participation: Fraction = 1.0


@dataclass(frozen=True)
class Start:
    """Where a run begins or continues.

    Attributes:
        state: The global model.
        rounds_done: Rounds that led to it.
        seed: Seed of all random streams of the run.
    """

    state: ModelState
    rounds_done: int = 0
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Round:
    """A finished round: what became of the state, who counted how much, and its scores."""

    number: int
    joined: RoundResult
    scores: Mapping[str, Scores]
    train_seconds: float
    score_seconds: float

    @property
    def state(self) -> ModelState:
        """The new global state."""
        return self.joined.state

    @property
    def reports(self) -> tuple[ClientReport, ...]:
        """Who trained and counted how much, in client order."""
        return self.joined.reports


def federate(
    engine: Engine, method: Method, start: Start, schedule: Schedule, score: Score
) -> Iterator[Round]:
    """Yield the rounds of an engine's clients from `start` to the end of the schedule."""
    join = PlainRound(train_all(engine), method, engine.client_infos(), start.seed)
    return go_rounds(join, start, schedule, score)


def go_rounds(
    join: FederatedRound, start: Start, schedule: Schedule, score: Score
) -> Iterator[Round]:
    """Yield the rounds that a join makes, from `start` to the end of the schedule."""
    state = start.state
    for number in range(start.rounds_done + 1, schedule.number + 1):
        began = time.perf_counter()
        chosen = choose(join.clients, schedule.participation, number, start.seed)
        joined = join(number, state, chosen)
        state = joined.state
        trained = time.perf_counter()
        scores = _score(score, state, number)
        scored = time.perf_counter()
        yield Round(number, joined, scores, trained - began, scored - trained)


def chosen_number(clients: int, participation: float) -> int:
    """Return how many clients train in a round."""
    return max(1, round(participation * clients))


def choose(clients: int, participation: float, number: int, seed: int) -> IntArray:
    """Return the clients of a round in rising order, drawn without replacement."""
    wanted = chosen_number(clients, participation)
    if wanted >= clients:
        return np.arange(clients)
    return np.sort(stream(seed, "choose", number).choice(clients, wanted, replace=False))


def _score(score: Score, state: ModelState, number: int) -> Mapping[str, Scores]:
    try:
        return score(state)
    except FloatingPointError as error:
        raise DivergedError(f"round {number}: the merged model {error}") from error
