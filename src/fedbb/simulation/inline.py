"""The plain engine: one client after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import nn

from fedbb.methods import Method
from fedbb.records import ClientInfo, ClientUpdate
from fedbb.simulation.base import make_client_infos
from fedbb.simulation.client_state import ClientStateStore, InMemoryStore
from fedbb.training.client_dataset import ClientDataset
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import NO_STATE, train_client


@dataclass(frozen=True, eq=False)
class Inline:
    """Trains all clients on one network, into which each restores the round's state.

    Args:
        model: the network; its own weights do not matter.
        clients: the data of every client.
        method: the method they follow.
        local: the settings of local training.
        store: holds the clients' states between rounds.
        state_rounds: the round that each client's state is from.
    """

    model: nn.Module
    clients: Sequence[ClientDataset]
    method: Method
    local: LocalConfig
    store: ClientStateStore = field(default_factory=InMemoryStore)
    state_rounds: dict[int, int] = field(default_factory=dict)

    def client_infos(self) -> list[ClientInfo]:
        """Return the information about every client."""
        return make_client_infos(self.clients, self.method.weighting)

    def train(self, jobs: Sequence[TrainJob]) -> Iterator[ClientUpdate]:
        """Train the clients of these jobs one after another."""
        for job in jobs:
            client, number = job.client, self.state_rounds.get(job.client)
            state = NO_STATE if number is None else self.store.load(client, number)
            update, kept = train_client(
                self.model, self.clients[client], job, self.method, self.local, state
            )
            if kept != NO_STATE:
                self.store.save(client, job.round, kept)
                self.state_rounds[client] = job.round
            yield update
