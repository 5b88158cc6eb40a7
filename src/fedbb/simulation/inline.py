"""The plain engine: one client after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.records import ClientInfo, ClientUpdate
from fedbb.simulation.base import make_client_infos
from fedbb.simulation.client_state import ClientStateStore, InMemoryStore
from fedbb.training.config import ClientDataset, LocalConfig, TrainJob
from fedbb.training.local import NO_STATE, train_client


@dataclass(frozen=True, eq=False)
class Inline:
    """All clients share one network as a workbench; each restores the round's state into it.

    `store` holds the clients' state between rounds, `state_rounds` the round each state is from.
    """

    model: NetworkModule
    shares: Sequence[ClientDataset]
    method: Method
    plan: LocalConfig
    store: ClientStateStore = field(default_factory=InMemoryStore)
    state_rounds: dict[int, int] = field(default_factory=dict)

    def client_infos(self) -> list[ClientInfo]:
        """Return the card of every client."""
        return make_client_infos(self.shares, self.method.weighting)

    def train(self, jobs: Sequence[TrainJob]) -> Iterator[ClientUpdate]:
        """Train the clients of these jobs in turn."""
        for job in jobs:
            client, since = job.client, self.state_rounds.get(job.client)
            memory = NO_STATE if since is None else self.store.load(client, since)
            share = self.shares[client]
            update, kept = train_client(self.model, share, job, self.method, self.plan, memory)
            if kept != NO_STATE:
                self.store.save(client, job.round, kept)
                self.state_rounds[client] = job.round
            yield update
