"""The way of secure sums to sites: each stage is one message to each, and each has its deadline."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import RecordDict

from fedbb.errors import ReplyError
from fedbb.flower.app.node_registry import NodeRegistry
from fedbb.flower.app.transport import Failure
from fedbb.secagg.flower.packing import Enclosed, pack_letter, read_letter
from fedbb.secagg.statistics_round import COMMIT

log = logging.getLogger("fedbb")

FIRST = (COMMIT, "keys", "context")
"""Stages that begin something: before a second try, clients that are away are waited for."""

WORK = "masked"
"""The stage in which sites train, so that their message carries the model."""


@dataclass(eq=False)
class SiteWire:
    """Carries the letters of one sum; `enclosed` goes with those that ask for work.

    `deadline` and `patience` are seconds: for a stage's answers, and for clients that are away.
    """

    roll: NodeRegistry
    what: str
    deadline: float
    patience: float
    enclosed: Enclosed | None = None
    _asked: set[str] = field(default_factory=set)

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the sites' answers as they come; why one gave none is in the log."""
        transport, enclosed = self.roll.transport, self.enclosed if stage == WORK else None
        nodes = self._find(stage, sorted(messages))
        letters = {
            node: pack_letter(stage, messages[client], client, enclosed)
            for client, node in nodes.items()
        }
        clients = {node: client for client, node in nodes.items()}
        kind = "query.secure" if enclosed is None else "train.secure"
        about = f"{self.what}, stage {stage}"
        for node, outcome in transport.send_and_receive(kind, letters, self.deadline, about):
            try:
                answer = _read(outcome)
            except ReplyError as error:
                log.warning("%s: no answer of client %d: %s", about, clients[node], error)
            else:
                yield clients[node], answer

    def _find(self, stage: str, clients: list[int]) -> dict[int, int]:
        again = stage in FIRST and stage in self._asked
        self._asked.add(stage)
        nodes = self.roll.find(clients, self.patience if again else 0.0)
        for client in clients:
            if client not in nodes:
                log.warning("%s, stage %s: client %d is not connected", self.what, stage, client)
        return nodes


def _read(outcome: RecordDict | Failure) -> bytes:
    if isinstance(outcome, Failure):
        raise ReplyError(outcome.reason)
    return read_letter(outcome)
