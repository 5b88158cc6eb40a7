"""The store of what clients keep between rounds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from fedbb.records import ClientState


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
