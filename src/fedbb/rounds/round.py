"""One round without secure aggregation: train the chosen clients, filter, weight and merge.

The policy says how many updates a round needs and how often it is repeated; `repeat_until_quorum`
is the one loop that repeats, also for rounds on Flower and for secure aggregation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from fedbb.aggregation.merging import renormalize
from fedbb.errors import FedbbError, QuorumError
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
from fedbb.simulation.base import Engine
from fedbb.training.config import TrainJob

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class RoundReplies:
    """The clients that replied to the jobs of a round, and those that failed.

    Args:
        clients: who replied, in the order of the jobs; each of their updates is sure to arrive.
        updates: their updates in the same order, possibly still on their way.
        failures: who does not count, and why.
    """

    clients: tuple[int, ...]
    updates: Iterable[ClientUpdate]
    failures: tuple[ClientFailure, ...] = ()


class TrainClients(Protocol):
    """Trains clients that may fail; a round may be attempted several times."""

    def __call__(self, jobs: Sequence[TrainJob], attempt: int) -> RoundReplies:
        """Return the replies to these jobs in this attempt, which is 1 for the first."""
        ...


def train_all(engine: Engine) -> TrainClients:
    """Return the training of an engine whose clients all reply, or else stop the run."""
    return lambda jobs, attempt: RoundReplies(
        tuple([job.client for job in jobs]), engine.train(jobs)
    )


class UpdateFilter(Protocol):
    """Looks at the replies of a round before they are weighted; may drop or change updates."""

    def __call__(self, current: ModelState, replies: RoundReplies) -> RoundReplies:
        """Return the replies that count, given the state that the clients started from."""
        ...


def accept_all(current: ModelState, replies: RoundReplies) -> RoundReplies:
    """Return the replies as they are."""
    return replies


@dataclass(frozen=True)
class RoundPolicy:
    """How many failed or malicious clients a round tolerates.

    Args:
        quorum: the share of the chosen clients whose updates must be valid.
        attempts: how often a round without a quorum is tried before the run stops.
        max_weight: the largest weight of one client; a client declares its own dispersion, and a
            false one must not own the model.
        validate: drops updates that cannot be used; what is left must make the quorum.
        min_updates: the fewest valid updates that `select` works with.
        select: chooses among the valid updates, or clips them.
    """

    quorum: float = 0.5
    attempts: int = 3
    max_weight: float = 1.0
    validate: UpdateFilter = accept_all
    min_updates: int = 1
    select: UpdateFilter = accept_all

    def required(self, chosen: int) -> int:
        """Return how many of the chosen clients must give a valid update."""
        return max(self.min_updates, math.ceil(self.quorum * chosen))


ROUND_POLICY = RoundPolicy()


def repeat_until_quorum(
    attempt: Callable[[int], Result],
    attempts: int,
    what: str,
    *,
    shortage: type[FedbbError] = QuorumError,
) -> Result:
    """Return the result of the first attempt in which enough clients count.

    Args:
        attempt: makes one attempt, given its number from 1. It raises `shortage` if too few
            clients count; the message says how many of how many, and why. Other errors pass.
        attempts: how many attempts are made.
        what: names what is repeated at the beginning of the final message, such as "round 3".
        shortage: the error by which an attempt says that too few clients count.

    Raises:
        QuorumError: the last attempt fell short too.
    """
    for number in range(1, attempts):
        try:
            return attempt(number)
        except shortage:
            pass  # try again; the last attempt's shortage is reported
    try:
        return attempt(attempts)
    except shortage as error:
        raise QuorumError(
            f"{what}: {error}, after {attempts} attempts; the rounds before it are kept, and the "
            "run can be resumed"
        ) from error


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The new global state, what is known of each client that counted, and who failed."""

    state: ModelState
    reports: tuple[ClientReport, ...]
    failures: tuple[ClientFailure, ...] = ()


class FederatedRound(Protocol):
    """Turns the training of the chosen clients into the next global state."""

    @property
    def clients(self) -> int:
        """The number of clients to choose from."""
        ...

    def __call__(self, number: int, state: ModelState, chosen: IntArray) -> RoundResult:
        """Return the result of round `number`, in which the chosen clients start from `state`."""
        ...


@dataclass(frozen=True, eq=False)
class PlainRound:
    """A round in which the server sees every update.

    Args:
        train_clients: trains the clients of a round.
        method: its weighting and merge are applied here.
        infos: the information about every client, in client order.
        seed: the seed of the run.
        policy: quorum, attempts, largest weight and filters.
    """

    train_clients: TrainClients
    method: Method
    infos: Sequence[ClientInfo]
    seed: int
    policy: RoundPolicy = ROUND_POLICY

    @property
    def clients(self) -> int:
        """The number of clients to choose from."""
        return len(self.infos)

    def __call__(self, number: int, state: ModelState, chosen: IntArray) -> RoundResult:
        """Return the result of round `number`, in which the chosen clients start from `state`."""
        empty = [
            ClientFailure(int(client), "has no samples")
            for client in chosen
            if self.infos[client].samples == 0
        ]
        able = np.array([client for client in chosen if self.infos[client].samples > 0], dtype=int)
        if len(able) == 0:
            return RoundResult(state, (), tuple(empty))
        order = able[longest_first(able, self.infos)]
        jobs = [TrainJob(int(client), number, self.seed, state) for client in order]
        replies = repeat_until_quorum(
            lambda attempt: self._attempt(jobs, attempt), self.policy.attempts, f"round {number}"
        )
        replies = self.policy.select(state, replies)
        by_client = self._weigh(replies.clients)
        weights = np.array([by_client[client] for client in replies.clients])
        reports: list[ClientReport] = []
        merged = self.method.merge(state, _report(replies.updates, weights, reports), weights)
        reports.sort(key=lambda report: report.client)
        failures = sorted((*empty, *replies.failures), key=lambda failure: failure.client)
        return RoundResult(merged, tuple(reports), tuple(failures))

    @cached_property
    def _weights(self) -> FloatArray:
        return self.method.weighting(self.infos)

    def _attempt(self, jobs: Sequence[TrainJob], attempt: int) -> RoundReplies:
        """Return the valid replies of one attempt; QuorumError if they are too few."""
        replies = self.policy.validate(jobs[0].state, self.train_clients(jobs, attempt))
        required = self.policy.required(len(jobs))
        if len(replies.clients) < required:
            reasons = "; ".join(f"client {f.client}: {f.reason}" for f in replies.failures)
            raise QuorumError(
                f"{len(replies.clients)} of {len(jobs)} clients count and {required} are needed "
                f"({reasons})"
            )
        return replies

    def _weigh(self, clients: Sequence[int]) -> Mapping[int, float]:
        """Return the weight of each of these clients; the weights sum to one."""
        present = np.sort(np.array(clients))
        weights = renormalize(self._weights[present], self.policy.max_weight)
        return dict(zip(present.tolist(), weights.tolist(), strict=True))


def longest_first(chosen: IntArray, infos: Sequence[ClientInfo]) -> IntArray:
    """Return the positions of the chosen clients by falling size, equal ones by client.

    The longest training begins first, so that no core idles at the end of a round. Updates are
    merged in this order too, since float sums depend on it: it follows from the infos alone, and
    few updates arrive before their turn.
    """
    return np.argsort([-infos[client].samples for client in chosen], kind="stable")


def _report(
    updates: Iterable[ClientUpdate], weights: FloatArray, reports: list[ClientReport]
) -> Iterator[ClientUpdate]:
    """Pass updates on to the merge, and keep of each what a record needs, which is no model."""
    for update, weight in zip(updates, weights.tolist(), strict=True):
        reports.append(
            ClientReport(update.client, weight, update.steps, update.train_loss, update.seconds)
        )
        yield update
