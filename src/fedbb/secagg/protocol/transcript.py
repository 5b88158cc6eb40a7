"""The server's view: every byte that comes to it or leaves it, for whoever wants to look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fedbb.secagg.protocol.transport import Wire


@dataclass(frozen=True)
class Passing:
    """A message between the server and a client, on its way `to` the client or `from` it."""

    way: str
    client: int
    stage: str
    message: bytes


Record = Callable[[Passing], None]


@dataclass(frozen=True, eq=False)
class Watched:
    """A wire that shows all it carries to a recorder."""

    wire: Wire
    record: Record

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Carry a stage's messages and show them, and the answers as they come."""
        for client, message in messages.items():
            self.record(Passing("to", client, stage, message))
        for client, answer in self.wire.exchange(stage, messages):
            self.record(Passing("from", client, stage, answer))
            yield client, answer
