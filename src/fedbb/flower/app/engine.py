"""The engine on Flower: clients are sites behind a grid, and any of them may fail at any time."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import safetensors.torch
from flwr.app import RecordDict

from fedbb.errors import QuorumError, ReplyError
from fedbb.evaluation.metrics import Scores
from fedbb.evaluation.operating_point import ODDS
from fedbb.evaluation.own_models import ClientsScores, PersonalScores, mean_over_clients
from fedbb.evaluation.sites import SiteScores
from fedbb.flower.app.node_registry import PLAIN_METHOD, NodeRegistry
from fedbb.flower.app.serde import (
    OwnPart,
    TrainRequest,
    TrainResponse,
    pack_scoring,
    pack_state,
    pack_tensors,
    pack_train_request,
    unpack_cases,
    unpack_scores,
    unpack_update,
)
from fedbb.flower.app.transport import Failure, GridTransport
from fedbb.methods import Method
from fedbb.records import (
    ClientFailure,
    ClientUpdate,
    FloatArray,
    IntArray,
    ModelFacts,
    ModelState,
    Task,
    Tensors,
)
from fedbb.rounds.replies import Expected, Inbox
from fedbb.rounds.round import RoundPolicy, RoundReplies, repeat_until_quorum
from fedbb.rounds.server_steps import ServerSteps
from fedbb.runs.federation import OWN_TEST
from fedbb.simulation.pool.protocol import SpillBuffer
from fedbb.state import add_prefix, flatten_state, select, unflatten_state
from fedbb.statistics import Moment, due
from fedbb.training.config import LocalConfig, TrainJob

log = logging.getLogger("fedbb")

STATISTICS = "statistics."
"""Prefix of the statistics of an update that waits on disk."""

ON_DISK = ModelState({}, {})
"""Stands for a model that waits on disk."""

Found = TypeVar("Found")

ContentOf = Callable[[int], RecordDict]
"""Returns the content of the message to a client."""

IN_MEMORY = 4
"""Updates that wait for their turn in memory; the others wait on disk."""


@dataclass(eq=False)
class FlowerEngine:
    """Sends jobs to sites and accepts only replies that are valid.

    Args:
        transport: how messages reach the nodes.
        registry: which node is which client.
        config: how clients train.
        defense: deadline, quorum, attempts and bounds of a round.
        run: the run's name at the sites, under which they keep their client's state.
        patience: seconds that a repeated round waits for clients that are not connected.
        state_rounds: the round of each client's state, as far as the server accepted its reply.
        method: its sampling and statistics, by which replies are checked.
        facts: the task and the network, from which the shapes of statistics follow.
        kept: the entries of the model that stay with the clients.
    """

    transport: GridTransport
    registry: NodeRegistry
    config: LocalConfig
    defense: RoundPolicy
    run: str
    patience: float = 60.0
    state_rounds: dict[int, int] = field(default_factory=dict)
    method: Method = PLAIN_METHOD
    facts: ModelFacts | None = None
    kept: frozenset[str] = frozenset()
    _before: tuple[int, dict[int, int]] = (0, {})

    def train(self, jobs: Sequence[TrainJob], attempt: int) -> RoundReplies:
        """Return the updates for these jobs that arrived in time and are valid."""
        if not jobs[0].measure:
            self._reset_state_rounds(jobs[0].round)
        wait = self.patience if attempt > 1 else 0.0
        nodes = self.registry.find([job.client for job in jobs], wait)
        failed = {job.client: "not connected" for job in jobs if job.client not in nodes}
        asked = {job.client: job for job in jobs if job.client in nodes}
        updates = _Updates()
        inbox = Inbox({client: self._expect(job, attempt) for client, job in asked.items()})
        for client, outcome in self._send(list(asked.values()), nodes, attempt):
            try:
                update = self._take(inbox, client, outcome)
            except ReplyError as error:
                if client in updates:
                    log.warning("%s", error)
                else:
                    failed.setdefault(client, str(error))
            else:
                updates.put(update)
        for client, reason in failed.items():
            log.warning("round %d: client %d is left out: %s", jobs[0].round, client, reason)
        present = tuple(job.client for job in jobs if job.client in updates)
        failures = tuple(ClientFailure(client, reason) for client, reason in failed.items())
        return RoundReplies(present, updates.take(present), failures)

    def score(self, state: ModelState) -> dict[str, Scores]:
        """Return the scores of a model, pooled over the sites that replied."""
        outline = self.registry.outline
        assert outline is not None
        content = pack_scoring(pack_state(state))
        found = self.score_each(lambda client: content)
        return pool_scores([found[client] for client in sorted(found)], outline.task)

    def score_each(self, content: ContentOf) -> dict[int, dict[str, Scores]]:
        """Return the scores on test and validation data of a quorum of the sites."""
        assert self.registry.outline is not None
        classes = len(self.registry.outline.classes)

        def ask(attempt: int) -> dict[int, dict[str, Scores]]:
            return self._ask_quorum(
                attempt, "evaluate", content, lambda reply: unpack_scores(reply, classes)
            )

        return repeat_until_quorum(ask, self.defense.attempts, "scoring")

    def score_clients(self, steps: ServerSteps, *, own_test: bool) -> SiteModelScorer:
        """Return what scores the sites' own models, at the sites.

        `own_test` says whether the recipe lets sites keep test data of their own.
        """
        return SiteModelScorer(self, steps, own_test)

    def own_content(self, model: ModelState, client: int) -> RecordDict:
        """Return the request to a site to score its own model, of which `model` is a part."""
        own = OwnPart(self.run, self.state_rounds.get(client))
        return pack_scoring(pack_state(model), own=own)

    def score_sites(self, state: ModelState, shift: FloatArray | None = None) -> list[SiteScores]:
        """Return the scores of a model on the own test data of each site that replies.

        `shift` is added to its logits, (C,), so that it decides at its operating point.
        """
        content = pack_scoring(pack_state(state), shift)
        return self.score_each_own(lambda client: content)

    def score_each_own(self, content: ContentOf) -> list[SiteScores]:
        """Return the scores on the own test data of each site that replies."""
        assert self.registry.outline is not None
        classes = len(self.registry.outline.classes)
        nodes = self.registry.find(sorted(self.registry.infos), self.patience)
        replies = self._evaluate(
            "evaluate.own",
            content,
            nodes,
            lambda reply: unpack_scores(reply, classes, (OWN_TEST,)),
        )
        found = {client: scores[OWN_TEST] for client, scores in replies}
        return [SiteScores.of(client, found[client]) for client in sorted(found)]

    def count_cases(self, state: ModelState) -> IntArray:
        """Return the validation cases of all sites in sum, by the log-odds a model gives them.

        Raises:
            QuorumError: Too few sites have validation data or reply.
        """
        assert self.registry.outline is not None
        multiclass = self.registry.outline.task is Task.MULTICLASS
        classes = 1 if multiclass else len(self.registry.outline.classes)
        shape, content = (2, classes, len(ODDS) + 1), pack_scoring(pack_state(state))

        def ask(attempt: int) -> dict[int, IntArray]:
            return self._ask_quorum(
                attempt,
                "evaluate.cases",
                lambda client: content,
                lambda reply: unpack_cases(reply, shape),
            )

        found = repeat_until_quorum(ask, self.defense.attempts, "counting validation cases")
        return np.asarray(np.sum([found[client] for client in sorted(found)], axis=0))

    def _reset_state_rounds(self, number: int) -> None:
        """Let every attempt at a round start from the client states that the round began with."""
        if self._before[0] != number:
            self._before = (number, dict(self.state_rounds))
        self.state_rounds.clear()
        self.state_rounds.update(self._before[1])

    def _expect(self, job: TrainJob, attempt: int) -> Expected:
        # The rule "clip" shortens a change that is too long instead of rejecting it.
        bound = None if self.defense.rule == "clip" else self.defense.max_norm
        info = self.registry.infos[job.client]
        moments: tuple[Moment, ...] = ("merged",) if job.measure else ("start", "end")
        config, personal = self.config, self.method.personal
        if personal is not None:
            config = replace(config, epochs=personal.epochs(config.epochs))
        return Expected(
            job.state,
            info,
            config,
            job.round,
            attempt,
            bound,
            self.method.sampling,
            due(self.method.statistics, job.round, *moments),
            self.facts,
            job.measure,
            self.method.compression,
            job.seed,
            self.kept,
        )

    def _send(
        self, jobs: Sequence[TrainJob], nodes: dict[int, int], attempt: int
    ) -> Iterator[tuple[int, RecordDict | Failure]]:
        if not jobs:
            return
        first = jobs[0]
        number = first.round
        states = {id(job.state): job.state for job in jobs}
        packed = {key: pack_state(state) for key, state in states.items()}
        broadcast = pack_tensors(first.broadcast) if first.broadcast else None
        contents = {
            nodes[job.client]: pack_train_request(
                TrainRequest(job, attempt, self.run, self.state_rounds.get(job.client)),
                packed[id(job.state)],
                broadcast,
            )
            for job in jobs
        }
        clients = {node: client for client, node in nodes.items()}
        subject = f"round {number}" if attempt == 1 else f"round {number}, attempt {attempt}"
        if first.measure:
            subject = f"statistics of {subject}"
        for node, outcome in self.transport.send_and_receive(
            "train", contents, self.defense.deadline, subject
        ):
            yield clients[node], outcome

    def _take(self, inbox: Inbox, client: int, outcome: RecordDict | Failure) -> ClientUpdate:
        if isinstance(outcome, Failure):
            raise ReplyError(outcome.reason)
        expected = inbox.expected[client]
        try:
            response = unpack_update(outcome)
        except ReplyError as error:
            raise ReplyError(f"{expected.where}: {error}") from error
        update = inbox.take(client, response.reply)
        self._note_client_state(client, expected.round, response)
        return update

    def _note_client_state(self, client: int, number: int, response: TrainResponse) -> None:
        if response.lost:
            log.warning(
                "round %d: client %d had lost its state of round %s and trained without it",
                number,
                client,
                self._before[1].get(client),
            )
        if response.kept:
            self.state_rounds[client] = number

    def _ask_quorum(
        self, attempt: int, kind: str, content: ContentOf, unpack: Callable[[RecordDict], Found]
    ) -> dict[int, Found]:
        """Return what a quorum of the sites replies to a model."""
        clients = sorted(self.registry.infos)
        required = max(1, math.ceil(self.defense.quorum * len(clients)))
        nodes = self.registry.find(clients, self.patience if attempt > 1 else 0.0)
        found = dict(self._evaluate(kind, content, nodes, unpack))
        if len(found) < required:
            raise QuorumError(
                f"{len(found)} of {len(clients)} sites scored the model and {required} are needed"
            )
        return found

    def _evaluate(
        self,
        kind: str,
        content: ContentOf,
        nodes: dict[int, int],
        unpack: Callable[[RecordDict], Found],
    ) -> Iterator[tuple[int, Found]]:
        """Yield the client and the reply of each site whose reply can be read."""
        contents = {node: content(client) for client, node in nodes.items()}
        clients = {node: client for client, node in nodes.items()}
        for node, outcome in self.transport.send_and_receive(
            kind, contents, self.defense.deadline, "scoring"
        ):
            try:
                if isinstance(outcome, Failure):
                    raise ReplyError(outcome.reason)
                yield clients[node], unpack(outcome)
            except ReplyError as error:
                log.warning("scores of client %d are left out: %s", clients[node], error)


@dataclass(frozen=True, eq=False)
class SiteModelScorer:
    """Scores the sites' own models; each site scores its own, and sends only scores."""

    engine: FlowerEngine
    steps: ServerSteps
    own_test: bool

    def __call__(self, shared: ModelState, server: Tensors) -> ClientsScores:
        """Return the scores on the sites' test data, as means over the sites that reply."""
        found = self.engine.score_each(self._content(shared, server))
        keeps = self.engine.method.personal is not None
        trained = sum(not keeps or client in self.engine.state_rounds for client in found)
        return mean_over_clients([found[client] for client in sorted(found)], trained)

    def sites(self, shared: ModelState, server: Tensors) -> tuple[SiteScores, ...]:
        """Return the scores of each site's model on what it keeps of its data for tests."""
        if not self.own_test:
            return ()
        return tuple(self.engine.score_each_own(self._content(shared, server)))

    def personal(self, shared: ModelState, server: Tensors) -> PersonalScores:
        """Return the scores on the sites' own test data, also of the shared model if it is one."""
        own = self.sites(shared, server)
        compared = self.engine.score_sites(shared) if self.engine.method.shares_model else ()
        return PersonalScores(own, tuple(compared))

    def _content(self, shared: ModelState, server: Tensors) -> ContentOf:
        def content(client: int) -> RecordDict:
            return self.engine.own_content(self.steps.start(server, client, shared), client)

        return content


class _Updates:
    """Updates that wait until all clients have replied; most models wait on disk."""

    def __init__(self) -> None:
        self._updates: dict[int, ClientUpdate] = {}
        self._models: SpillBuffer | None = None

    def __contains__(self, client: int) -> bool:
        return client in self._updates

    def put(self, update: ClientUpdate) -> None:
        """Keep an update, its model as safetensors bytes if there are many."""
        if len(self._updates) >= IN_MEMORY:
            self._models = self._models or SpillBuffer(limit=0)
            found = add_prefix(STATISTICS, update.statistics)
            content = safetensors.torch.save(flatten_state(update.state) | found)
            self._models.put(update.client, content)
            update = replace(update, state=ON_DISK, statistics={})
        self._updates[update.client] = update

    def take(self, clients: Sequence[int]) -> Iterator[ClientUpdate]:
        """Yield the updates of these clients and free their space."""
        with self._models or nullcontext():
            for client in clients:
                update = self._updates.pop(client)
                if update.state is ON_DISK:
                    assert self._models is not None
                    tensors = safetensors.torch.load(self._models.take(client))
                    found = select(tensors, STATISTICS)
                    update = replace(update, state=unflatten_state(tensors), statistics=found)
                yield update


def pool_scores(sites: Sequence[dict[str, Scores]], task: Task) -> dict[str, Scores]:
    """Return the pooled scores of several sites, for each set of examples that any of them has.

    Each site scores on its own test data, and no labels or counts leave it. The pooled scores are
    means over the sites, weighted by their numbers of samples: exact for accuracy where all labels
    are known, and approximate for the rest. An exact recall would need the number of cases of each
    class, and ranks (AUROC, average precision) can only be compared within a site.
    """
    names = {name: None for scores in sites for name in scores}
    return {
        name: _pool([scores[name] for scores in sites if name in scores], task) for name in names
    }


def _pool(parts: Sequence[Scores], task: Task) -> Scores:
    sizes = np.array([part.samples for part in parts], dtype=np.float64)
    per_class = {
        metric: weighted_mean(np.stack([part.per_class[metric] for part in parts]), sizes)
        for metric in parts[0].per_class
    }
    figures = {
        metric: weighted_mean(np.array([[part.macro[metric]] for part in parts]), sizes)
        for metric in ("accuracy", "balanced_accuracy")
    }
    vectors = {metric: per_class[metric] for metric in ("f1", "auroc", "average_precision")}
    if task is Task.MULTICLASS:
        figures["balanced_accuracy"] = per_class["recall"]
    vectors = figures | vectors
    macro = {metric: _mean(vector) for metric, vector in vectors.items()}
    defined = {metric: int((~np.isnan(vector)).sum()) for metric, vector in vectors.items()}
    known = int((~np.isnan(per_class["recall"])).sum())
    defined["accuracy"] = known
    if task is Task.MULTILABEL:
        defined["balanced_accuracy"] = known
    return Scores(int(sizes.sum()), macro, per_class, defined)


def weighted_mean(values: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return the mean over sites (S, C) → (C,), weighted by size, without undefined values.

    >>> weighted_mean(np.array([[0.5, np.nan], [1.0, 1.0]]), np.array([1.0, 3.0]))
    array([0.875, 1.   ])
    """
    there = ~np.isnan(values)
    weights = there * sizes[:, np.newaxis]
    total = weights.sum(axis=0)
    summed = (np.where(there, values, 0.0) * weights).sum(axis=0)
    undefined = np.full(total.shape, np.nan)
    return np.asarray(np.divide(summed, total, out=undefined, where=total > 0))


def _mean(vector: FloatArray) -> float:
    there = vector[~np.isnan(vector)]
    return float(there.mean()) if len(there) else float("nan")
