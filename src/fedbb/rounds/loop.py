"""The server's loop: choose clients, run a round, score; a generator that the consumer drives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

import numpy as np
from annotated_types import Ge

from fedbb._util.constraints import STRICT_TABLE, Count, Fraction, Seed
from fedbb.errors import DivergedError
from fedbb.evaluation.metrics import Scores
from fedbb.evaluation.own_models import ClientsScores
from fedbb.evaluation.sites import SiteScores
from fedbb.methods.topology import Topology
from fedbb.records import ClientReport, FloatArray, IntArray, ModelState, Tensors
from fedbb.rng import stream
from fedbb.rounds.round import FederatedRound, RoundResult

StoppedBy = Literal["target", "patience"]
"""Why a run stopped before its last round."""

Score = Callable[[ModelState], Mapping[str, Scores]]


class ScoreClients(Protocol):
    """Scores the clients' own models, where a method has no usable global one."""

    def __call__(self, shared: ModelState, server: Tensors) -> ClientsScores:
        """Return the scores on common examples, given the shared model and the server state."""
        ...

    def sites(self, shared: ModelState, server: Tensors) -> tuple[SiteScores, ...]:
        """Return the scores of each client's model on its own test data."""
        ...


@dataclass(frozen=True)
class Schedule:
    """The rounds of a run: the section `rounds` of a recipe.

    Args:
        number: the number of rounds.
        participation: the share of the clients that is chosen in each round, at least one of them.
        patience: rounds without a better score on validation data after which the run stops; None
            never stops it.
        target: the score on validation data at which the run stops; None never stops it.
        topology: who exchanges models with whom, in rounds without a server; None for a server.
        degree: the number of neighbours of each client in a random topology.
        graph_seed: the seed of a random topology; None for that of the run.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    number: Count = 10
    participation: Fraction = 1.0
    patience: Count | None = None
    target: Fraction | None = None
    topology: Topology | None = None
    degree: Annotated[int, Ge(0)] | None = None
    graph_seed: Seed | None = None

    @property
    def stops_early(self) -> bool:
        """Whether the run may stop before its last round."""
        return self.patience is not None or self.target is not None

    def stopped_by(self, scores: Sequence[float]) -> StoppedBy | None:
        """Return why a run stops after the rounds with these scores, None if it goes on.

        A run that has reached its last round was not stopped. It depends on the scores alone, so
        that a resumed run stops where an uninterrupted one does.

        >>> Schedule(number=9, patience=2).stopped_by([0.5, 0.6, 0.6, 0.4])
        'patience'
        """
        if not scores or len(scores) >= self.number:
            return None
        if self.target is not None and max(scores) >= self.target:
            return "target"
        # The first of equal scores is the best: an equal one is not an improvement.
        best = scores.index(max(scores)) + 1
        is_over = self.patience is not None and len(scores) - best >= self.patience
        return "patience" if is_over else None


@dataclass(frozen=True)
class Start:
    """Where a run begins or resumes.

    Args:
        state: the global state.
        rounds_done: how many rounds led to it.
        seed: the seed of all random streams.
        server: the state of the server steps; None begins a new one.
    """

    state: ModelState
    rounds_done: int = 0
    seed: int = 0
    server: Tensors | None = None


@dataclass(frozen=True, eq=False)
class Round:
    """A finished round: its result, the served model with its scores by data set, its duration.

    If `clients` is there, the scores are means over the models of the clients.
    """

    number: int
    result: RoundResult
    served: ModelState
    scores: Mapping[str, Scores]
    train_seconds: float
    score_seconds: float
    clients: ClientsScores | None = None

    @property
    def state(self) -> ModelState:
        """The new global state, from which the next round starts."""
        return self.result.state

    @property
    def reports(self) -> tuple[ClientReport, ...]:
        """Which clients counted and how much, in client order."""
        return self.result.reports


def run_rounds(
    federated_round: FederatedRound,
    start: Start,
    schedule: Schedule,
    score: Score,
    score_clients: ScoreClients | None = None,
) -> Iterator[Round]:
    """Yield the rounds from `start` to the end of the schedule.

    There are no callbacks: the consumer of the generator logs, saves or stops between rounds.

    Args:
        federated_round: turns the training of the chosen clients into the next state.
        start: the state to begin with, how many rounds it has behind it, and the seed.
        schedule: the number of rounds, and the participation.
        score: returns the scores of a state by the name of the data set.
        score_clients: scores the clients' own models instead; None if the state is scored.

    Raises:
        DivergedError: the new state gives outputs that are not finite.
    """
    state, steps = start.state, federated_round.server_steps
    server = steps.begin(state) if start.server is None else start.server
    clients, usual = federated_round.clients, federated_round.shares
    for number in range(start.rounds_done + 1, schedule.number + 1):
        began = time.perf_counter()
        drawn = steps.shares(server)
        shares = usual if drawn is None else drawn
        chosen = choose(clients, schedule.participation, number, start.seed, shares)
        result = federated_round(number, state, chosen, server)
        state, server = result.state, result.server
        trained = time.perf_counter()
        served = steps.serve(server, state)
        own = None
        if score_clients is None:
            scores = _score(score, served, number)
        else:
            own = _score_clients(score_clients, served, server, number)
            scores = own.mean
        scored = time.perf_counter()
        yield Round(number, result, served, scores, trained - began, scored - trained, own)


def chosen_number(clients: int, participation: float) -> int:
    """Return how many clients train in a round."""
    return max(1, round(participation * clients))


def choose(
    clients: int,
    participation: float,
    number: int,
    seed: int,
    shares: FloatArray | None = None,
) -> IntArray:
    """Return the clients of a round in rising order, drawn without replacement.

    Args:
        clients: the number of clients.
        participation: the share of them that is drawn.
        number: the number of the round.
        seed: the seed of the run.
        shares: the probability of each client in a draw; None for equal ones. A client of
            probability 0 is drawn only if there are not enough others.
    """
    wanted = chosen_number(clients, participation)
    if wanted >= clients:
        return np.arange(clients)
    rng = stream(seed, "choose", number)
    if shares is None:
        return np.sort(rng.choice(clients, wanted, replace=False))
    able, empty = np.flatnonzero(shares > 0), np.flatnonzero(shares <= 0)
    if wanted >= len(able):
        return np.sort(np.concatenate([able, empty[: wanted - len(able)]]))
    return np.sort(rng.choice(clients, wanted, replace=False, p=shares))


def _score(score: Score, state: ModelState, number: int) -> Mapping[str, Scores]:
    try:
        return score(state)
    except FloatingPointError as error:
        raise DivergedError(f"round {number}: the merged model {error}") from error


def _score_clients(
    score: ScoreClients, shared: ModelState, server: Tensors, number: int
) -> ClientsScores:
    try:
        return score(shared, server)
    except FloatingPointError as error:
        raise DivergedError(f"round {number}: the model of a client {error}") from error
