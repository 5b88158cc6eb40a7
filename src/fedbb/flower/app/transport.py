"""Messages to Flower nodes and their replies: one message per node, and a deadline for all."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import httpx
from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from fedbb._util.text import shorten
from fedbb.flower import internals
from fedbb.flower.app.frames import GRACE

log = logging.getLogger("fedbb")

NODE_CHECK_SECONDS = 3.0
"""Seconds between two checks whether the nodes that still have to reply are connected."""

REPLY_BASE = 64 * 2**20
"""Bytes that every reply may have, such as label counts and scores."""

REPLY_GROWTH = 8
"""Bytes that a reply may have for each byte of the longest message to a site. A masked sum has
twice as many as the model that it is computed from."""

NUMBER_BYTES = 16
"""Bytes that a reply may have for each number of its statistics: twice those of a masked one."""

_KNOWN_REASONS = {
    internals.ErrorCode.NODE_UNAVAILABLE: "left in mid-round",
    internals.ErrorCode.CLIENT_APP_CRASHED: "its client app crashed",
    internals.ErrorCode.LOAD_CLIENT_APP_EXCEPTION: "its client app could not be loaded",
}


@dataclass(frozen=True)
class Failure:
    """Why a node gave no reply that could be read."""

    reason: str


@dataclass(frozen=True)
class _Overdue:
    sender: str
    subject: str


@dataclass(eq=False)
class GridTransport:
    """A Flower grid, polled every `poll` seconds at first.

    Args:
        grid: Flower's grid.
        poll: seconds between two questions for replies, at first.
        names: the names of nodes in logs.
        statistics_numbers: the numbers in a client's statistics, which lengthen its reply.
        arrivals: returns those of some messages whose replies have arrived, by one request for all;
            without it the grid is asked for each reply.
    """

    grid: Grid
    poll: float = 0.05
    names: dict[int, str] = field(default_factory=dict)
    statistics_numbers: int = 0
    arrivals: Callable[[list[str]], list[str]] | None = None
    _longest_message: int = 0
    _overdue: dict[str, _Overdue] = field(default_factory=dict)

    def longest_reply(self) -> int:
        """Return the most bytes that a reply may have; a node decides how many it sends."""
        statistics = NUMBER_BYTES * self.statistics_numbers
        return REPLY_BASE + REPLY_GROWTH * self._longest_message + statistics

    def nodes(self) -> dict[int, str]:
        """Return the connected nodes, each with the time at which it last connected."""
        return {int(node.node_id): node.last_activated_at for node in self.grid.get_nodes()}

    def node_keys(self) -> dict[int, str]:
        """Return the SHA-256 of the public key that each connected node has authenticated with."""
        return {
            int(node.node_id): hashlib.sha256(node.public_key).hexdigest()
            for node in self.grid.get_nodes()
        }

    def name(self, node: int) -> str:
        """Return the name of a node in logs."""
        return self.names.get(node, f"node {node}")

    def send_and_receive(
        self, kind: str, contents: Mapping[int, RecordDict], seconds: float, subject: str
    ) -> Iterator[tuple[int, RecordDict | Failure]]:
        """Send a message to each node and yield what comes back, at least once for each node.

        Args:
            kind: Flower's message type, such as "train" or "query.info".
            contents: the content for each node.
            seconds: the deadline; nodes that have not replied by then yield a `Failure`.
            subject: what the message is about, for logs.
        """
        self._discard_late_replies()
        connected = self.nodes()
        waiting: dict[str, int] = {}
        for node, content in contents.items():
            number = self._push(kind, node, content, seconds, subject)
            if number is None:
                yield node, Failure("the SuperLink rejected the message to it")
            else:
                waiting[number] = node
        contacted = dict(waiting)
        began = checked = time.monotonic()
        end = began + seconds
        while waiting:
            asked, before = time.monotonic(), len(waiting)
            for number, outcome in self._pull_all(waiting):
                node = contacted[number]
                waiting.pop(number, None)
                yield node, outcome
            now = time.monotonic()
            asking = now - asked if len(waiting) == before else 0.0
            if not waiting or now >= end:
                break
            if now - checked >= NODE_CHECK_SECONDS:
                checked = now
                yield from self._give_up_restarted(waiting, connected, subject)
            time.sleep(self._pause(now - began, asking, end - now))
        for number, node in waiting.items():
            self._overdue[number] = _Overdue(self.name(node), subject)
            yield node, Failure(f"no reply within {seconds:g} s")

    def _pause(self, waited: float, asking: float, left: float) -> float:
        """Return the seconds until replies are asked for again.

        They grow with the time waited so far. They are at least twice as long as the last requests
        in vain took, so that a SuperLink with much to do spends its time on the sites.
        """
        return max(0.0, min(max(self.poll, waited / 30, 2 * asking), 2.0, left))

    def _push(
        self, kind: str, node: int, content: RecordDict, seconds: float, subject: str
    ) -> str | None:
        message = Message(content, node, kind, ttl=seconds + GRACE, group_id=subject)
        self._longest_message = max(self._longest_message, _count_bytes(content))
        # One by one, so that a rejected message does not affect the others.
        numbers = list(self.grid.push_messages([message]))
        return numbers[0] if numbers and numbers[0] else None

    def _pull_all(self, numbers: Iterable[str]) -> Iterator[tuple[str, RecordDict | Failure]]:
        """Yield the replies to these messages that have arrived, each with its message."""
        ready = list(numbers)
        try:
            if self.arrivals is not None and ready:
                ready = self.arrivals(ready)
        except httpx.HTTPError as error:
            _excuse(error)
            return
        for number in ready:
            for outcome in self._pull(number):
                yield number, outcome

    def _pull(self, number: str) -> list[RecordDict | Failure]:
        """Return the replies to a message; there are several if a reply was replayed.

        One message at a time, because a reply that Flower cannot decode fails the whole call.
        """
        try:
            found = list(self.grid.pull_messages([number]))
        except httpx.HTTPError as error:
            _excuse(error)
            return []
        except Exception as error:
            return [Failure(f"its reply cannot be read: {shorten(error)}")]
        outcomes: list[RecordDict | Failure] = []
        for message in found:
            if message.metadata.reply_to_message_id != number:
                log.warning("dropped a reply to another message")
            elif message.has_error():
                outcomes.append(Failure(_reason(message.error)))
            else:
                outcomes.append(message.content)
        return outcomes

    def _give_up_restarted(
        self, waiting: dict[str, int], connected: Mapping[int, str], subject: str
    ) -> Iterator[tuple[int, Failure]]:
        """Stop waiting for nodes that left or restarted: Flower delivers a message only once."""
        now = self.nodes()
        for number, node in list(waiting.items()):
            if now.get(node) != connected.get(node):
                del waiting[number]
                self._overdue[number] = _Overdue(self.name(node), subject)
                reason = "was restarted" if node in now else "left"
                yield node, Failure(f"{reason} in mid-round")

    def _discard_late_replies(self) -> None:
        """Remove replies that arrived after their deadline from the SuperLink, and log them."""
        overdue = dict(self._overdue)
        for number, outcome in self._pull_all(overdue):
            self._overdue.pop(number, None)
            if not isinstance(outcome, Failure):
                late = overdue[number]
                log.warning("%s: dropped a late reply to %s", late.sender, late.subject)


def _count_bytes(content: RecordDict) -> int:
    """Return the bytes of arrays, and of single values of bytes, in a content.

    Flower's own count fails on values that are empty. All else is short.
    """
    arrays = sum(record.count_bytes() for record in content.array_records.values())
    values = (value for record in content.config_records.values() for value in record.values())
    return arrays + sum(len(value) for value in values if isinstance(value, bytes))


def _excuse(error: httpx.HTTPError) -> None:
    """Raise an error, unless the SuperLink itself failed, for example on a locked database."""
    if not (isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500):
        raise error
    log.warning("the SuperLink failed and is asked again: %s", shorten(error))


def _reason(error: Error) -> str:
    known = _KNOWN_REASONS.get(error.code)
    return known or shorten(error.reason or f"error {error.code}")
