"""The plain engine: one client after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.records import ClientCard, ClientMemory, ClientUpdate
from fedbb.training.local import FORGOTTEN, train_client
from fedbb.training.plan import Job, LocalPlan, Share


@dataclass(frozen=True, eq=False)
class Inline:
    """All clients share one network as a workbench; each restores the round's state into it.

    `memories` holds what clients keep between rounds, by client.
    """

    model: NetworkModule
    shares: Sequence[Share]
    method: Method
    plan: LocalPlan
    memories: dict[int, ClientMemory] = field(default_factory=dict)

    def introduce(self) -> list[ClientCard]:
        """Return the card of every client."""
        return [self._card(client, share) for client, share in enumerate(self.shares)]

    def train(self, jobs: Sequence[Job]) -> Iterator[ClientUpdate]:
        """Train the clients of these jobs in turn."""
        for job in jobs:
            share, memory = self.shares[job.client], self.memories.get(job.client, FORGOTTEN)
            update, kept = train_client(self.model, share, job, self.method, self.plan, memory)
            if kept != FORGOTTEN:
                self.memories[job.client] = kept
            yield update

    def _card(self, client: int, share: Share) -> ClientCard:
        return ClientCard(client, len(share), self.method.weighting.measure(share.count()))
