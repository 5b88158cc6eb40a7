"""The plain engine: one client after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.records import ClientCard, ClientUpdate
from fedbb.simulation.client_info import make_cards
from fedbb.simulation.client_state import MemoryStore, Shelf
from fedbb.training.config import Job, LocalPlan, Share
from fedbb.training.local import FORGOTTEN, train_client


@dataclass(frozen=True, eq=False)
class Inline:
    """All clients share one network as a workbench; each restores the round's state into it.

    `store` holds what clients keep between rounds, `dated` the round each client's memory is from.
    """

    model: NetworkModule
    shares: Sequence[Share]
    method: Method
    plan: LocalPlan
    store: MemoryStore = field(default_factory=Shelf)
    dated: dict[int, int] = field(default_factory=dict)

    def introduce(self) -> list[ClientCard]:
        """Return the card of every client."""
        return make_cards(self.shares, self.method.weighting)

    def train(self, jobs: Sequence[Job]) -> Iterator[ClientUpdate]:
        """Train the clients of these jobs in turn."""
        for job in jobs:
            client, since = job.client, self.dated.get(job.client)
            memory = FORGOTTEN if since is None else self.store.load(client, since)
            share = self.shares[client]
            update, kept = train_client(self.model, share, job, self.method, self.plan, memory)
            if kept != FORGOTTEN:
                self.store.save(client, job.round, kept)
                self.dated[client] = job.round
            yield update
