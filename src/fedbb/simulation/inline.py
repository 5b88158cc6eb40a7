"""What every engine offers, the store of client states, and the plain engine: client by client."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import nn

from fedbb._util.collection import pause_collection
from fedbb.aggregation.merging import Weighting
from fedbb.methods import Method
from fedbb.models.base import classifier_name
from fedbb.records import ClientInfo, ClientState, ClientUpdate, ModelState
from fedbb.state import snapshot
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import NO_STATE, ClientDataset, measure_client, train_client


class Engine(Protocol):
    """Runs clients; it holds their data, the method they follow and their local settings."""

    def client_infos(self) -> Sequence[ClientInfo]:
        """Return the information about every client, in client order."""
        ...

    def train(self, jobs: Sequence[TrainJob]) -> Iterable[ClientUpdate]:
        """Yield an update for every job, in the order of the jobs."""
        ...


class SimulationEngine(Engine, Protocol):
    """An engine whose clients are simulated on this machine."""

    @property
    def method(self) -> Method:
        """The method that the clients follow."""
        ...

    @property
    def model(self) -> nn.Module:
        """A network that states can be restored into between rounds."""
        ...

    @property
    def local(self) -> LocalConfig:
        """The settings of local training."""
        ...

    @property
    def clients(self) -> Sequence[ClientDataset]:
        """The data of every client."""
        ...

    @property
    def classifier(self) -> str | None:
        """The name of the network's classifier."""
        ...


def make_client_infos(clients: Sequence[ClientDataset], weighting: Weighting) -> list[ClientInfo]:
    """Return the information about every client: its size, and what the weighting measures."""
    measure = weighting.measure
    with pause_collection():
        return [
            ClientInfo(number, len(client.indices), measure(client.counts))
            for number, client in enumerate(clients)
        ]


class ClientStateStore(Protocol):
    """Holds the states of clients by client and round.

    A run's checkpoint names the round of each client's state, so a store keeps a state until its
    user drops it. Several processes may use copies of a store that writes files. Implementations:
    `InMemoryStore`, `ClientStateFiles` in runs/checkpoint.py, and Flower's record of a node.
    """

    def load(self, client: int, number: int) -> ClientState:
        """Return what a client kept after round `number`; an error if it is lost."""
        ...

    def save(self, client: int, number: int, state: ClientState) -> None:
        """Keep what a client keeps after round `number`."""
        ...

    def keep_only(self, client: int, rounds: Collection[int]) -> None:
        """Drop a client's states of all rounds but these."""
        ...


@dataclass(frozen=True)
class InMemoryStore:
    """A store in the memory of this process; it holds each client's last state only."""

    states: dict[int, tuple[int, ClientState]] = field(default_factory=dict)

    def load(self, client: int, number: int) -> ClientState:
        """Return what a client kept after round `number`."""
        found, state = self.states[client]
        if found != number:
            raise KeyError(f"the state of client {client} is of round {found}, not {number}")
        return state

    def save(self, client: int, number: int, state: ClientState) -> None:
        """Keep what a client keeps after round `number`."""
        self.states[client] = (number, state)

    def keep_only(self, client: int, rounds: Collection[int]) -> None:
        """Drop a client's state unless it is of one of these rounds."""
        if client in self.states and self.states[client][0] not in rounds:
            del self.states[client]


@dataclass(frozen=True, eq=False)
class Inline:
    """Trains all clients on one network, into which each restores the round's state.

    Args:
        model: the network; where clients have models of their own, those begin with its weights.
        clients: the data of every client.
        method: the method they follow.
        local: the settings of local training.
        store: holds the clients' states between rounds.
        state_rounds: the round that each client's state is from.
        by_client: the networks that clients take in turn, if they have different ones. A job then
            holds a model of the client's network, or none if no model is shared.
        infos: the information about every client, where it is known already.
        first: the model that clients' own models begin with, if the method has such.
    """

    model: nn.Module
    clients: Sequence[ClientDataset]
    method: Method
    local: LocalConfig
    store: ClientStateStore = field(default_factory=InMemoryStore)
    state_rounds: dict[int, int] = field(default_factory=dict)
    by_client: Sequence[nn.Module] = ()
    infos: Sequence[ClientInfo] | None = None
    first: ModelState | None = field(init=False, default=None)
    firsts: tuple[ModelState, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        # The record is frozen.
        object.__setattr__(self, "firsts", tuple(snapshot(one) for one in self.by_client))
        if self.method.personal is not None and self.method.personal.second is not None:
            object.__setattr__(self, "first", snapshot(self.model))

    @property
    def classifier(self) -> str | None:
        """The name of the network's classifier."""
        return classifier_name(self.model)

    def client_infos(self) -> Sequence[ClientInfo]:
        """Return the information about every client."""
        if self.infos is not None:
            return self.infos
        return make_client_infos(self.clients, self.method.weighting)

    def train(self, jobs: Sequence[TrainJob]) -> Iterator[ClientUpdate]:
        """Train the clients of these jobs one after another."""
        for job in jobs:
            if job.measure:
                yield measure_client(
                    self.model, self.clients[job.client], job, self.method, self.local
                )
                continue
            client, number = job.client, self.state_rounds.get(job.client)
            state = NO_STATE if number is None else self.store.load(client, number)
            update, kept = self._train(job, state)
            if kept != NO_STATE:
                self.store.save(client, job.round, kept)
                self.state_rounds[client] = job.round
            yield update

    def _train(self, job: TrainJob, state: ClientState) -> tuple[ClientUpdate, ClientState]:
        data, network, first = self.clients[job.client], self.model, self.first
        if self.by_client:
            turn = job.client % len(self.by_client)
            network, first = self.by_client[turn], self.firsts[turn]
        if first is not None and not job.state.params:
            return train_apart(network, data, job, self.method, self.local, state, first)
        return train_client(network, data, job, self.method, self.local, state, first)


def train_apart(
    network: nn.Module,
    client: ClientDataset,
    job: TrainJob,
    method: Method,
    local: LocalConfig,
    state: ClientState,
    first: ModelState,
) -> tuple[ClientUpdate, ClientState]:
    """Train a client whose network no other client need have: nothing of it is exchanged.

    Args:
        network: the client's network.
        client: its data.
        job: the round; it holds no model.
        method: the method, under which the whole model stays with the client.
        local: the settings of local training.
        state: what the client kept, with its model.
        first: the model that it begins with.

    Returns:
        An update without a model, and what the client keeps.
    """
    update, kept = train_client(
        network, client, replace(job, state=first), method, local, state, first
    )
    return replace(update, state=job.state), kept
