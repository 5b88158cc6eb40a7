"""The plain engine: one client after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.records import ClientCard, ClientUpdate
from fedbb.training.local import train_client
from fedbb.training.plan import Job, LocalPlan, Share


@dataclass(frozen=True, eq=False)
class Inline:
    """All clients share one network as a workbench; each restores the round's state into it."""

    model: NetworkModule
    shares: Sequence[Share]
    method: Method
    plan: LocalPlan

    def introduce(self) -> list[ClientCard]:
        """Return the card of every client."""
        return [self._card(client, share) for client, share in enumerate(self.shares)]

    def train(self, jobs: Sequence[Job]) -> Iterator[ClientUpdate]:
        """Train the clients of these jobs in turn."""
        for job in jobs:
            yield train_client(self.model, self.shares[job.client], job, self.method, self.plan)

    def _card(self, client: int, share: Share) -> ClientCard:
        return ClientCard(client, len(share), self.method.weighting.measure(share.count()))
