"""What an engine does for the server: introduce the clients, and have some of them train."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedbb.records import ClientFailure, ClientInfo, ClientUpdate
from fedbb.training.config import TrainJob


class Engine(Protocol):
    """Where clients live; the method they follow and their data are the engine's own business."""

    def client_infos(self) -> Sequence[ClientInfo]:
        """Return the card of every client, in client order."""
        ...

    def train(self, jobs: Sequence[TrainJob]) -> Iterable[ClientUpdate]:
        """Yield an update for every job, in the order of the jobs."""
        ...


@dataclass(frozen=True, eq=False)
class RoundReplies:
    """Who answered, their updates in the order of the jobs, and who did not count and why.

    The updates may still be on their way; whoever is named in `clients` is sure to come.
    """

    clients: tuple[int, ...]
    updates: Iterable[ClientUpdate]
    absences: tuple[ClientFailure, ...] = ()


class TrainClients(Protocol):
    """A way of having jobs done by clients that may fail; a round may be tried several times."""

    def __call__(self, jobs: Sequence[TrainJob], attempt: int) -> RoundReplies:
        """Return the answers to these jobs."""
        ...


def train_all(engine: Engine) -> TrainClients:
    """Ask an engine all of whose clients answer, or stop the run."""

    def ask(jobs: Sequence[TrainJob], attempt: int) -> RoundReplies:
        return RoundReplies(tuple(job.client for job in jobs), engine.train(jobs))

    return ask
