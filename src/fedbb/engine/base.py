"""What an engine does for the server: introduce the clients, and have some of them train."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from fedbb.records import ClientCard, ClientUpdate
from fedbb.training.plan import Job


class Engine(Protocol):
    """Where clients live; the method they follow and their data are the engine's own business."""

    def introduce(self) -> Sequence[ClientCard]:
        """Return the card of every client, in client order."""
        ...

    def train(self, jobs: Sequence[Job]) -> Iterable[ClientUpdate]:
        """Yield an update for every job, in the order of the jobs."""
        ...
