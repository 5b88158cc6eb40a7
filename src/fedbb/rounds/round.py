"""One round without secure aggregation: train the chosen clients, filter, weight and merge.

`RoundPolicy` says what a round tolerates: how many updates it needs, how often it is repeated, and
which filters drop or bound updates. `repeat_until_quorum` is the one loop that repeats, also for
rounds on Flower and for secure aggregation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, ClassVar, Literal, Protocol, TypeVar

import numpy as np
from annotated_types import Ge

from fedbb._util.constraints import STRICT_TABLE, Count, Fraction, Positive
from fedbb.aggregation.merging import clip_update, renormalize, validate_update
from fedbb.aggregation.robust import Krum, krum_scores, squared_distances
from fedbb.aggregation.server_step import Turn
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
    Tensors,
)
from fedbb.rounds.server_steps import NO_SERVER_STEPS, ServerSteps, StatisticsCollector
from fedbb.simulation.inline import Engine
from fedbb.statistics import due
from fedbb.training.config import TrainJob


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


class UpdateFilter(Protocol):
    """Looks at the replies of a round before they are weighed; may drop or change updates."""

    def __call__(self, current: ModelState, replies: RoundReplies) -> RoundReplies:
        """Return the replies that count, given the state that the clients started from."""
        ...


def accept_all(current: ModelState, replies: RoundReplies) -> RoundReplies:
    """Return the replies as they are."""
    return replies


@dataclass(frozen=True)
class ValidUpdates:
    """Drops updates that cannot be trained models, or whose norm is too large.

    Args:
        max_norm: the largest `update_norm` that is allowed.
    """

    max_norm: float = math.inf

    def __call__(self, current: ModelState, replies: RoundReplies) -> RoundReplies:
        """Return the replies with valid updates."""
        return self.from_starts(dict.fromkeys(replies.clients, current), replies)

    def from_starts(self, starts: Mapping[int, ModelState], replies: RoundReplies) -> RoundReplies:
        """Return the replies with valid updates, given the model each client started from."""
        held = list(replies.updates)
        faults = {
            update.client: validate_update(starts[update.client], update.state, self.max_norm)
            for update in held
        }
        reasons = {client: fault for client, fault in faults.items() if fault is not None}
        return leave_out(replies, held, reasons)


@dataclass(frozen=True)
class KrumFilter:
    """Drops the updates that Krum does not select."""

    krum: Krum

    def __call__(self, current: ModelState, replies: RoundReplies) -> RoundReplies:
        """Return the replies that Krum selects; of equal ones those of the lowest clients."""
        held = list(replies.updates)
        ordered = sorted(held, key=lambda update: update.client)
        distances = squared_distances([update.state for update in ordered])
        scores = krum_scores(distances, self.krum.byzantine)
        kept = set(self.krum(scores).tolist())
        # As a distance, since few know what size a sum of squares should have.
        apart = [math.sqrt(score / (len(held) - self.krum.byzantine - 2)) for score in scores]
        farthest = max(apart[place] for place in kept)
        reasons = {
            update.client: f"left out by {self.krum.name}: {apart[place]:.4g} from its nearest, "
            f"those kept at most {farthest:.4g}"
            for place, update in enumerate(ordered)
            if place not in kept
        }
        return leave_out(replies, held, reasons)


@dataclass(frozen=True)
class ClipFilter:
    """Keeps all updates, and clips those with a larger norm.

    Args:
        max_norm: the largest `update_norm` of what is merged.
    """

    max_norm: float

    def __call__(self, current: ModelState, replies: RoundReplies) -> RoundReplies:
        """Return the replies, each update clipped as it arrives."""
        clipped = (
            replace(update, state=clip_update(current, update.state, self.max_norm))
            for update in replies.updates
        )
        return replace(replies, updates=clipped)


def leave_out(
    replies: RoundReplies, held: Iterable[ClientUpdate], reasons: Mapping[int, str]
) -> RoundReplies:
    """Return the replies without the clients that `reasons` names."""
    kept = [update for update in held if update.client not in reasons]
    left = [ClientFailure(client, reason) for client, reason in reasons.items()]
    return RoundReplies(tuple(update.client for update in kept), kept, (*replies.failures, *left))


RobustRule = Literal["clip", "median", "trimmed-mean", "krum", "multi-krum"]
"""The Byzantine-robust aggregation rules that a recipe may name."""


@dataclass(frozen=True)
class RoundPolicy:
    """What a round tolerates: the section `defense` of a recipe.

    Attributes:
        quorum: Fraction of the chosen clients whose updates must be valid.
        attempts: How often a round is tried before the run stops.
        deadline: Seconds that a client of a deployed federation has to reply.
        max_norm: Largest norm of an update; under the rule "clip" longer ones are clipped to it,
            else they are left out. Unbounded if None.
        max_weight: Largest weight of a client. A client declares its own statistics, and a
            malicious one must not own the model.
        rule: Byzantine-robust aggregation rule; None for plain aggregation.
        byzantine: Malicious clients in a round that the rule tolerates.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    quorum: Fraction = 0.5
    attempts: Count = 3
    deadline: Positive = 600.0
    max_norm: Positive | None = None
    max_weight: Fraction = 1.0
    rule: RobustRule | None = None
    byzantine: Annotated[int, Ge(0)] = 0

    def required(self, chosen: int) -> int:
        """Return how many of the chosen clients must give a valid update."""
        return max(self.min_updates, math.ceil(self.quorum * chosen))

    @property
    def min_updates(self) -> int:
        """The fewest valid updates with which the rule tolerates `byzantine` malicious clients."""
        if self.rule in ("krum", "multi-krum"):
            return Krum(self.byzantine).least
        if self.rule in ("median", "trimmed-mean"):
            return 2 * self.byzantine + 1
        return 1

    @property
    def validate(self) -> UpdateFilter:
        """The filter that drops updates that cannot be used; what is left must make the quorum."""
        if self.rule is None and self.max_norm is None:
            return accept_all
        if self.rule == "clip" or self.max_norm is None:
            return ValidUpdates()
        return ValidUpdates(self.max_norm)

    @property
    def select(self) -> UpdateFilter:
        """The filter that chooses among the valid updates, or clips them."""
        if self.rule == "clip":
            return ClipFilter(math.inf if self.max_norm is None else self.max_norm)
        if self.rule in ("krum", "multi-krum"):
            return KrumFilter(Krum(self.byzantine, many=self.rule == "multi-krum"))
        return accept_all


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
            f"{what}: {error}, after {attempts} attempts; finished rounds are kept, and a "
            "resumed run continues after them"
        ) from error


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The new global state, what is known of each client that counted, and who failed.

    `server` is the state of the server steps after the round.
    """

    state: ModelState
    reports: tuple[ClientReport, ...]
    failures: tuple[ClientFailure, ...] = ()
    server: Tensors = field(default_factory=dict)


NO_SERVER_STATE: Tensors = {}


class FederatedRound(Protocol):
    """Turns the training of the chosen clients into the next global state."""

    @property
    def clients(self) -> int:
        """The number of clients to choose from."""
        ...

    @property
    def shares(self) -> FloatArray | None:
        """The probability with which each client is chosen; None if all are chosen alike."""
        ...

    @property
    def server_steps(self) -> ServerSteps:
        """What the server does beside weighting and merging."""
        ...

    def __call__(
        self, number: int, state: ModelState, chosen: IntArray, server: Tensors = NO_SERVER_STATE
    ) -> RoundResult:
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
        server_steps: the method's server steps in this run.
    """

    train_clients: TrainClients
    method: Method
    infos: Sequence[ClientInfo]
    seed: int
    policy: RoundPolicy = ROUND_POLICY
    validate: UpdateFilter | None = None
    server_steps: ServerSteps = NO_SERVER_STEPS

    def __post_init__(self) -> None:
        if self.server_steps.steps != self.method.server:
            raise ValueError(f"the server steps are not those of {self.method.name}")

    @property
    def clients(self) -> int:
        """The number of clients to choose from."""
        return len(self.infos)

    @property
    def shares(self) -> FloatArray | None:
        """The probability with which each client is chosen; None if all are chosen alike."""
        if not self.method.sampling.by_size:
            return None
        samples = np.array([info.samples for info in self.infos], dtype=np.float64)
        return np.asarray(samples / samples.sum())

    def __call__(
        self, number: int, state: ModelState, chosen: IntArray, server: Tensors = NO_SERVER_STATE
    ) -> RoundResult:
        """Return the result of round `number`, in which the chosen clients start from `state`."""
        empty = [
            ClientFailure(int(client), "has no samples")
            for client in chosen
            if self.infos[client].samples == 0
        ]
        able = np.array([client for client in chosen if self.infos[client].samples > 0], dtype=int)
        if len(able) == 0:
            return RoundResult(state, (), tuple(empty), server)
        order = able[longest_first(able, self.infos)]
        broadcast = self.server_steps.broadcast(server, number)
        start = partial(self.server_steps.start, server, model=state)
        jobs = [
            TrainJob(client, number, self.seed, start(client), broadcast)
            for client in order.tolist()
        ]
        replies = self.policy.select(state, self._train(jobs))
        by_client = self._weigh(replies.clients, server)
        weights = np.array([by_client[client] for client in replies.clients])
        reports: list[ClientReport] = []
        wanted = due(self.method.statistics, number, "start", "end")
        found = StatisticsCollector(wanted, hold=self.server_steps.sees_updates)
        sent = None
        if self.method.compression is not None:
            sent = self.method.compression.sent_bytes(state)
        updates = found.watch(_report(replies.updates, weights, reports, sent))
        merged = self.method.merge(state, updates, weights)
        reports.sort(key=lambda report: report.client)
        failures = sorted((*empty, *replies.failures), key=lambda failure: failure.client)
        result = RoundResult(merged, tuple(reports), tuple(failures), server)
        return self._serve_steps(state, jobs, result, found)

    def _serve_steps(
        self,
        before: ModelState,
        jobs: Sequence[TrainJob],
        result: RoundResult,
        found: StatisticsCollector,
    ) -> RoundResult:
        """Return the result after the server steps, given the statistics of the round."""
        steps, number = self.server_steps, jobs[0].round
        if not steps.steps:
            return result
        counted = tuple(report.client for report in result.reports)
        turn = Turn(
            number,
            before,
            result.state,
            counted,
            steps.run,
            found.sums,
            found.by_name(),
            found.updates,
            infos=tuple(self.infos) if steps.sees_updates else (),
        )
        server, model = steps.step(result.server, turn)
        measured = due(self.method.statistics, number, "merged")
        if measured:
            broadcast = steps.broadcast(server, number)
            again = [
                replace(job, state=model, broadcast=broadcast, measure=True)
                for job in jobs
                if job.client in counted
            ]
            replies = self._train(again)
            found = StatisticsCollector(measured)
            for _ in found.watch(replies.updates):
                pass
            clients = tuple(sorted(replies.clients))
            turn = replace(
                turn, merged=model, clients=clients, sums=found.sums, each=found.by_name()
            )
            server, model = steps.calibrate(server, turn)
        return replace(result, state=model, server=server)

    @cached_property
    def _weights(self) -> FloatArray:
        return self.method.weighting(self.infos)

    def _train(self, jobs: Sequence[TrainJob]) -> RoundReplies:
        """Return the valid replies to jobs, after several attempts if need be."""
        return repeat_until_quorum(
            lambda attempt: self._attempt(jobs, attempt),
            self.policy.attempts,
            f"round {jobs[0].round}",
        )

    def _attempt(self, jobs: Sequence[TrainJob], attempt: int) -> RoundReplies:
        """Return the valid replies of one attempt; QuorumError if they are too few."""
        validate = self.validate or self.policy.validate
        if jobs[0].measure:
            validate = accept_all  # there are no models in the replies
        replies = self.train_clients(jobs, attempt)
        if isinstance(validate, ValidUpdates):
            starts = {job.client: job.state for job in jobs}
            replies = validate.from_starts(starts, replies)
        else:
            replies = validate(jobs[0].state, replies)
        required = self.policy.required(len(jobs))
        if len(replies.clients) < required:
            reasons = "; ".join(f"client {f.client}: {f.reason}" for f in replies.failures)
            raise QuorumError(
                f"{len(replies.clients)} of {len(jobs)} clients count and {required} are needed "
                f"({reasons})"
            )
        return replies

    def _weigh(self, clients: Sequence[int], server: Tensors) -> Mapping[int, float]:
        """Return the weight of each of these clients; the weights sum to one."""
        present = np.sort(np.array(clients))
        whole = self.server_steps.weigh(server, self._weights)
        there = self.server_steps.weigh_present(server, present, whole[present])
        weights = renormalize(there, self.policy.max_weight)
        return dict(zip(present.tolist(), weights.tolist(), strict=True))


def longest_first(chosen: IntArray, infos: Sequence[ClientInfo]) -> IntArray:
    """Return the positions of the chosen clients by falling size, equal ones by client.

    The longest training begins first, so that no core idles at the end of a round. Updates are
    merged in this order too, since float sums depend on it: it follows from the infos alone, and
    few updates arrive before their turn.
    """
    return np.argsort([-infos[client].samples for client in chosen], kind="stable")


def _report(
    updates: Iterable[ClientUpdate],
    weights: FloatArray,
    reports: list[ClientReport],
    sent: int | None,
) -> Iterator[ClientUpdate]:
    """Pass updates on to the merge, and keep of each what a record needs, which is not a model."""
    for update, weight in zip(updates, weights.tolist(), strict=True):
        facts = (update.steps, update.train_loss, update.seconds)
        size = sent if update.message_bytes is None else update.message_bytes
        reports.append(ClientReport(update.client, weight, *facts, size))
        yield update
