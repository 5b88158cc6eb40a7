"""The models that simulated clients have of their own, and their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedbb.data.dataset import Examples
from fedbb.evaluation.metrics import Scores, score_logits
from fedbb.evaluation.own_models import ClientsScores, PersonalScores, mean_over_clients
from fedbb.evaluation.sites import OWN_TEST, SiteScores
from fedbb.personal import PERSONAL, Personal
from fedbb.records import FloatArray, ModelState, Task, Tensors
from fedbb.rounds.server_steps import ServerSteps
from fedbb.runs.federation import OwnTest
from fedbb.simulation.inline import ClientStateStore
from fedbb.state import digest, select

ScoreModel = Callable[[ModelState, int], Mapping[str, Scores]]
"""Returns the scores of a model of the network of this number, on the common examples."""

Outputs = Callable[[ModelState, Sequence[str], int], Mapping[str, FloatArray]]
"""Returns the logits (N, C) of a model, of the network of this number, for examples by name."""

NOTHING = Personal()


@dataclass(frozen=True, eq=False)
class OwnModels:
    """The models of simulated clients: what each keeps in place of its part of the shared model.

    Args:
        clients: the number of clients.
        first: the model that the run began with.
        store: holds what clients keep.
        state_rounds: the round that each client's state is from.
        personal: which part stays with a client; None for nothing.
        steps: the server steps, which may start each client from a model of its own.
        firsts: the first models of the networks that clients take in turn, if they have different
            ones; the shared model then has no entries.
    """

    clients: int
    first: ModelState
    store: ClientStateStore
    state_rounds: Mapping[int, int]
    personal: Personal | None
    steps: ServerSteps
    firsts: Sequence[ModelState] = ()

    def network(self, client: int) -> int:
        """Return the number of a client's network."""
        return client % len(self.firsts) if self.firsts else 0

    @property
    def trained(self) -> int:
        """How many clients took part so far; where the server mixes models, all have one."""
        if self.personal is None:
            return self.clients
        return sum(client in self.state_rounds for client in range(self.clients))

    def kept(self, client: int) -> Tensors:
        """Return what a client keeps for its personal part; empty if it never took part."""
        number = self.state_rounds.get(client)
        if number is None:
            return {}
        return select(self.store.load(client, number).tensors, PERSONAL)

    def model(self, client: int, shared: ModelState, server: Tensors) -> ModelState:
        """Return the model of a client, given the shared model and the server state."""
        if self.firsts:
            shared = self.firsts[self.network(client)]
        start = self.steps.start(server, client, shared)
        return (self.personal or NOTHING).model(start, self.first, self.kept(client))

    def __call__(self, shared: ModelState, server: Tensors) -> Iterator[tuple[int, ModelState]]:
        """Yield each client with its model; clients without one of their own share one object."""
        for client in range(self.clients):
            yield client, self.model(client, shared, server)


@dataclass(frozen=True, eq=False)
class OwnModelScorer:
    """Scores the clients' own models in a simulation.

    Args:
        models: the models.
        score: scores one model on the common examples, given the number of its network.
        outputs: the logits of one model for a client's own test data, by its name.
        tests: the labels of each client's own test data, by its name.
        task: what a label is.
        hidden: whether the run is private.
        shares_model: whether the shared model can be used as it is.
    """

    models: OwnModels
    score: ScoreModel
    outputs: Outputs
    tests: Mapping[str, FloatArray]
    task: Task
    hidden: bool = False
    shares_model: bool = False

    def __call__(self, shared: ModelState, server: Tensors) -> ClientsScores:
        """Return the scores on the common examples, as means over the clients."""
        found: list[Mapping[str, Scores]] = []
        if any(step.has_consensus for step in self.models.steps.steps):
            return self._score_agreeing(shared, server)
        common: dict[int, Mapping[str, Scores]] = {}
        unmoved = [id(model) for model in (shared, *self.models.firsts)]
        for client, model in self.models(shared, server):
            network = self.models.network(client)
            if id(model) not in unmoved:
                found.append(self.score(model, network))
                continue
            if id(model) not in common:
                common[id(model)] = self.score(model, network)
            found.append(common[id(model)])
        return replace(mean_over_clients(found, self.models.trained), hidden=self.hidden)

    def _score_agreeing(self, mean: ModelState, server: Tensors) -> ClientsScores:
        """Return the scores of models that may be equal, and their distance from their mean."""
        found: list[Mapping[str, Scores]] = []
        known: dict[str, Mapping[str, Scores]] = {}
        squares = []
        for _, model in self.models(mean, server):
            key = digest(model)
            if key not in known:
                known[key] = self.score(model, 0)
            found.append(known[key])
            squares += [
                float((tensor.double() - mean.params[name].double()).abs().square().sum())
                for name, tensor in sorted(model.params.items())
            ]
        distance = math.sqrt(math.fsum(squares) / len(found))
        return mean_over_clients(found, self.models.trained, distance)

    def sites(self, shared: ModelState, server: Tensors) -> tuple[SiteScores, ...]:
        """Return the scores of each client's model on its own test data, where it keeps some."""
        return tuple(
            SiteScores.of(client, self._score_own(client, model))
            for client, model in self.models(shared, server)
            if own_test_name(client) in self.tests
        )

    def personal(self, shared: ModelState, server: Tensors) -> PersonalScores:
        """Return the scores on the clients' own test data, also of the shared model if it is one.

        A method with a shared model keeps the clients' models beside it.
        """
        compared: tuple[SiteScores, ...] = ()
        if self.shares_model:
            compared = tuple(
                SiteScores.of(client, self._score_own(client, shared))
                for client in range(self.models.clients)
                if own_test_name(client) in self.tests
            )
        return PersonalScores(self.sites(shared, server), compared)

    def _score_own(self, client: int, model: ModelState) -> Scores:
        name = own_test_name(client)
        logits = self.outputs(model, (name,), self.models.network(client))[name]
        return score_logits(logits, self.tests[name], self.task)


def own_test_name(client: int) -> str:
    """Return the name of a client's own test data among the examples of an engine."""
    return f"{OWN_TEST} {client}"


def divide_own_test(own: OwnTest | None) -> dict[str, Examples]:
    """Return the own test data of each client that keeps some, by name."""
    if own is None:
        return {}
    return {
        own_test_name(client): own.examples.take(np.flatnonzero(own.owners == client))
        for client in np.unique(own.owners).tolist()
    }
