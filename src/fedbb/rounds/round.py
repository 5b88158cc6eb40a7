"""One round without secure aggregation: train the chosen clients, filter, weight and merge.

The policy says how many updates a round needs and how often it is repeated; `repeat_until_quorum`
is the one loop that repeats, also for rounds on Flower and for secure aggregation.
"""

from __future__ import annotations

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
from fedbb.rounds.policy import RoundPolicy, RoundReplies, UpdateFilter
from fedbb.simulation.base import Engine
from fedbb.training.config import TrainJob

Result = TypeVar("Result")


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
        validate: a filter in place of the policy's own validation, as where every update has been
            validated on arrival.
    """

    train_clients: TrainClients
    method: Method
    infos: Sequence[ClientInfo]
    seed: int
    policy: RoundPolicy = ROUND_POLICY
    validate: UpdateFilter | None = None

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
        validate = self.validate or self.policy.validate
        replies = validate(jobs[0].state, self.train_clients(jobs, attempt))
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
