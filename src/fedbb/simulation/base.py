"""What every engine offers, and what the server learns about clients before the first round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from fedbb.aggregation.weighting import Weighting
from fedbb.records import ClientInfo, ClientUpdate
from fedbb.training.client_dataset import ClientDataset
from fedbb.training.config import TrainJob


class Engine(Protocol):
    """Runs clients; it holds their data, the method they follow and their local settings."""

    def client_infos(self) -> Sequence[ClientInfo]:
        """Return the information about every client, in client order."""
        ...

    def train(self, jobs: Sequence[TrainJob]) -> Iterable[ClientUpdate]:
        """Yield an update for every job, in the order of the jobs."""
        ...


def make_client_infos(clients: Sequence[ClientDataset], weighting: Weighting) -> list[ClientInfo]:
    """Return the information about every client: its size, and what the weighting measures."""
    return [
        ClientInfo(number, len(client), weighting.measure(client.counts))
        for number, client in enumerate(clients)
    ]
