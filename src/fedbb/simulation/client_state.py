"""Where clients keep what they remember between rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fedbb.records import ClientState


class ClientStateStore(Protocol):
    """Holds a memory by client and the round it is from; several processes may use copies of it."""

    def load(self, client: int, number: int) -> ClientState:
        """Return what a client kept in this round."""
        ...

    def save(self, client: int, number: int, memory: ClientState) -> None:
        """Keep what a client remembers after this round."""
        ...


@dataclass(frozen=True)
class InMemoryStore:
    """A store in this process's own memory, of each client's last round."""

    kept: dict[int, tuple[int, ClientState]] = field(default_factory=dict)

    def load(self, client: int, number: int) -> ClientState:
        """Return what a client kept in this round."""
        found, memory = self.kept[client]
        if found != number:
            raise KeyError(f"client {client} remembers round {found}, not {number}")
        return memory

    def save(self, client: int, number: int, memory: ClientState) -> None:
        """Keep what a client remembers after this round."""
        self.kept[client] = (number, memory)
