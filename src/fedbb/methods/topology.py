"""Rounds without a server: clients exchange models with their neighbours in a graph.

A simulation keeps the models of all clients in the server state, as one tensor for each entry. In a
round every client trains its own model and takes the weighted mean of its own and its neighbours'
trained models. Nobody else learns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from fedbb.aggregation.merging import Weighting, average, renormalize
from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.errors import RecipeError
from fedbb.methods.record import BY_SAMPLES, Method
from fedbb.records import ClientInfo, FloatArray, IntArray, ModelState, RunFacts, Tensors
from fedbb.rng import stream
from fedbb.state import add_prefix, flatten_state, mix, select, unflatten_state

Topology = Literal["complete", "ring", "random"]

Graph = tuple[tuple[int, ...], ...]
"""The neighbours of each client in rising order, without the client itself."""

MODELS = "models."

SWAPS = 10
"""Tries to exchange the ends of two edges, for each edge of a random graph."""


@lru_cache(maxsize=8)
def make_graph(topology: Topology, clients: int, degree: int | None, seed: int) -> Graph:
    """Return who exchanges models with whom.

    Args:
        topology: "complete", "ring", or "random" with `degree` neighbours for every client.
        clients: the number of clients.
        degree: the number of neighbours in a random graph, 0 for none; None otherwise.
        seed: the seed of a random graph.

    Raises:
        RecipeError: there is no graph of this degree.
    """
    if topology == "complete":
        return tuple(
            tuple(other for other in range(clients) if other != client) for client in range(clients)
        )
    if topology == "ring":
        return _circulant(clients, 2 if clients > 2 else clients - 1)
    assert degree is not None
    if degree >= clients or clients * degree % 2:
        raise RecipeError(
            f"rounds.degree = {degree} is not possible with {clients} clients: it must be below "
            "their number, and the product of both must be even"
        )
    return _shuffled(_circulant(clients, degree), seed)


def _circulant(clients: int, degree: int) -> Graph:
    """Return a graph in which every client has the same neighbours relative to itself."""
    steps = [step for half in range(1, degree // 2 + 1) for step in (half, -half)]
    if degree % 2:
        steps.append(clients // 2)
    return tuple(
        tuple(sorted({(client + step) % clients for step in steps})) for client in range(clients)
    )


def _shuffled(graph: Graph, seed: int) -> Graph:
    """Return a random graph of the same degrees: pairs of edges exchange their ends."""
    edges = [(one, two) for one, near in enumerate(graph) for two in near if one < two]
    near = [set(neighbours) for neighbours in graph]
    rng = stream(seed, "topology")
    for _ in range(SWAPS * len(edges) if len(edges) > 1 else 0):
        first, second = (int(place) for place in rng.choice(len(edges), 2, replace=False))
        (a, b), (c, d) = edges[first], edges[second]
        if rng.random() < 0.5:
            c, d = d, c
        # a–b and c–d become a–d and c–b, unless one of these is there or joins a client to itself.
        if len({a, b, c, d}) < 4 or d in near[a] or b in near[c]:
            continue
        for one, two in ((a, b), (c, d)):
            near[one].discard(two)
            near[two].discard(one)
        for one, two in ((a, d), (c, b)):
            near[one].add(two)
            near[two].add(one)
        edges[first], edges[second] = (a, d), (c, b)
    return tuple(tuple(sorted(neighbours)) for neighbours in near)


@dataclass(frozen=True)
class NeighbourAveraging(ServerStep):
    """Every client keeps a model and averages it with those of its neighbours.

    The weights of a neighbourhood are the method's own, computed from what its clients declare to
    each other; of those that take part in a round they sum to one. Who does not take part keeps its
    model. The merged model is the mean of all clients' models, which nobody has: it is kept to look
    at, and runs record how far the clients are from it.

    Args:
        topology: who exchanges models with whom.
        degree: the number of neighbours in a random graph.
        graph_seed: the seed of a random graph; None for that of the run.
        weighting: the weights of the clients of a neighbourhood.
        max_weight: the largest of these weights.
    """

    topology: Topology
    degree: int | None = None
    graph_seed: int | None = None
    weighting: Weighting = BY_SAMPLES
    max_weight: float = 1.0
    name: ClassVar[str] = "neighbours"
    sees_updates: ClassVar[bool] = True
    shares_model: ClassVar[bool] = False
    has_consensus: ClassVar[bool] = True

    def graph(self, facts: RunFacts) -> Graph:
        """Return the neighbours of each client of a run."""
        seed = facts.seed if self.graph_seed is None else self.graph_seed
        return make_graph(self.topology, facts.clients, self.degree, seed)

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return the first model for every client."""
        self.graph(facts)
        return add_prefix(
            MODELS,
            {
                name: tensor.unsqueeze(0).repeat(facts.clients, *(1 for _ in tensor.shape))
                for name, tensor in flatten_state(first).items()
            },
        )

    def start(self, state: Tensors, client: int, model: ModelState) -> ModelState:
        """Return the client's own model."""
        rows = {name: rows[client].clone() for name, rows in select(state, MODELS).items()}
        return unflatten_state(rows)

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Return the models of all clients after the exchange, and their mean."""
        models = {name: rows.clone() for name, rows in select(state, MODELS).items()}
        graph = self.graph(turn.facts)
        # Clients with the same neighbourhood, as in a complete graph, have the same mean.
        found: dict[tuple[int, ...], ModelState] = {}
        for client in turn.updates:
            near = tuple(sorted((client, *graph[client])))
            if near not in found:
                weights = self.weights(near, turn.infos, turn.updates)
                there = [other for other in turn.updates if other in weights]
                states = (turn.updates[other] for other in there)
                found[near] = mix(states, [weights[other] for other in there])
            for name, tensor in flatten_state(found[near]).items():
                models[name][client] = tensor
        kept = add_prefix(MODELS, models)
        every = range(turn.facts.clients)
        states = (self.start(kept, client, turn.merged) for client in every)
        return kept, mix(states, [1.0 / len(every)] * len(every))

    def weights(
        self, near: tuple[int, ...], infos: tuple[ClientInfo, ...], present: Mapping[int, object]
    ) -> dict[int, float]:
        """Return the weights of the clients of a neighbourhood that take part; they sum to one."""
        whole: FloatArray = self.weighting([infos[client] for client in near])
        there = [place for place, client in enumerate(near) if client in present]
        weights = renormalize(whole[np.array(there)], self.max_weight)
        return dict(zip([near[place] for place in there], weights.tolist(), strict=True))


def with_topology(
    method: Method,
    topology: Topology | None,
    degree: int | None = None,
    graph_seed: int | None = None,
    max_weight: float = 1.0,
) -> Method:
    """Return the method in rounds without a server, if a topology is given.

    Args:
        method: what clients train by, and how they weigh their neighbours.
        topology: who exchanges models with whom; None for rounds with a server.
        degree: the number of neighbours in a random graph.
        graph_seed: the seed of a random graph; None for that of the run.
        max_weight: the largest weight of a client in a neighbourhood.

    Raises:
        RecipeError: names a part of the method that needs a server or one common model.
    """
    if topology is None or any(isinstance(step, NeighbourAveraging) for step in method.server):
        return method
    if part := _unsuited(method):
        raise RecipeError(f'rounds.topology = "{topology}" is not possible with {part}')
    step = NeighbourAveraging(topology, degree, graph_seed, method.weighting, max_weight)
    return replace(method, server=(step,))


def _unsuited(method: Method) -> str:
    """Name a part that needs a server or one common model, and say why; "" if there is none."""
    of = f"of {method.name}"
    for step in method.server:
        return f"{type(step).__name__} {of}: it is a step of a server, and there is none"
    for statistic in method.statistics:
        return f"{type(statistic).__name__} {of}: it is sent to a server, and there is none"
    if method.merge is not average:
        merge = getattr(method.merge, "__name__", type(method.merge).__name__)
        return f"{merge} {of}: it joins changes of one common model, and neighbours have their own"
    if method.personal is not None:
        return f"{type(method.personal).__name__} {of}: every client keeps its whole model anyway"
    if method.compression is not None:
        return (
            f"{type(method.compression).__name__} {of}: what it sends is a change of a model that "
            "the receiver must have"
        )
    if method.sampling.by_size:
        return f"{type(method.sampling).__name__} {of}: nobody knows the sizes of all clients"
    return ""
