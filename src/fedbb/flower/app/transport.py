"""Messages to sites and back: one to each, and what comes in time; nothing is waited for longer."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import httpx
from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

log = logging.getLogger("fedbb")

LOOK = 3.0
"""Seconds between looks at whether the nodes that are waited for are still the same."""

GRACE = 300.0
"""Seconds that a message outlives its deadline, so that clocks which differ do not lose it."""

_KNOWN_REASONS = {
    ErrorCode.NODE_UNAVAILABLE: "left in mid-round",
    ErrorCode.CLIENT_APP_CRASHED: "its client app crashed",
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION: "its client app could not be loaded",
}


@dataclass(frozen=True)
class Failure:
    """Why a site gave no answer that could be read."""

    reason: str


@dataclass(frozen=True)
class _Late:
    who: str
    what: str


@dataclass(eq=False)
class Post:
    """A grid, asked every `poll` seconds at first; `names` tells what to call the nodes."""

    grid: Grid
    poll: float = 0.2
    names: dict[int, str] = field(default_factory=dict)
    _late: dict[str, _Late] = field(default_factory=dict)

    def nodes(self) -> dict[int, str]:
        """Return the nodes that are connected, each with the moment it last joined."""
        return {int(node.node_id): node.last_activated_at for node in self.grid.get_nodes()}

    def name(self, node: int) -> str:
        """Return what a node is called."""
        return self.names.get(node, f"node {node}")

    def exchange(
        self, kind: str, letters: Mapping[int, RecordDict], seconds: float, what: str
    ) -> Iterator[tuple[int, RecordDict | Failure]]:
        """Send a message to each node and yield what comes back, at least once for each.

        After so many seconds the rest are given up. `what` says in logs what it was about.
        """
        self._drop_late()
        joined = self.nodes()
        waiting: dict[str, int] = {}
        for node, content in letters.items():
            number = self._push(kind, node, content, seconds, what)
            if number is None:
                yield node, Failure("the message to it was refused")
            else:
                waiting[number] = node
        began = looked = time.monotonic()
        end = began + seconds
        while waiting:
            for number, node in list(waiting.items()):
                for outcome in self._pull(number):
                    waiting.pop(number, None)
                    yield node, outcome
            now = time.monotonic()
            if not waiting or now >= end:
                break
            if now - looked >= LOOK:
                looked = now
                yield from self._give_up_changed(waiting, joined, what)
            time.sleep(self._pause(now - began, end - now))
        for number, node in waiting.items():
            self._late[number] = _Late(self.name(node), what)
            yield node, Failure(f"no answer within {seconds:g} s")

    def _pause(self, waited: float, left: float) -> float:
        """Return for how long to rest: the longer it takes, the less a moment more is felt."""
        return max(0.0, min(max(self.poll, waited / 30), 2.0, left))

    def _push(
        self, kind: str, node: int, content: RecordDict, seconds: float, what: str
    ) -> str | None:
        message = Message(content, node, kind, ttl=seconds + GRACE, group_id=what)
        # One by one, so that a message which is refused takes no other with it.
        numbers = list(self.grid.push_messages([message]))
        return numbers[0] if numbers and numbers[0] else None

    def _pull(self, number: str) -> list[RecordDict | Failure]:
        """Return what came in answer to a message, which is more than one thing if it is replayed.

        One by one, for a reply that Flower itself cannot read ends the whole call.
        """
        try:
            found = list(self.grid.pull_messages([number]))
        except httpx.HTTPError as error:
            if not _is_passing(error):
                raise
            log.warning("the SuperLink could not answer and is asked again: %s", _line(error))
            return []
        except Exception as error:
            return [Failure(f"its answer cannot be read: {_line(error)}")]
        outcomes: list[RecordDict | Failure] = []
        for message in found:
            if message.metadata.reply_to_message_id != number:
                log.warning("an answer to something else was dropped")
            elif message.has_error():
                outcomes.append(Failure(_reason(message.error)))
            else:
                outcomes.append(message.content)
        return outcomes

    def _give_up_changed(
        self, waiting: dict[str, int], joined: Mapping[int, str], what: str
    ) -> Iterator[tuple[int, Failure]]:
        """Wait no longer for nodes that were restarted: a message is delivered only once."""
        now = self.nodes()
        for number, node in list(waiting.items()):
            if now.get(node) != joined.get(node):
                del waiting[number]
                self._late[number] = _Late(self.name(node), what)
                reason = "was restarted" if node in now else "left"
                yield node, Failure(f"{reason} in mid-round")

    def _drop_late(self) -> None:
        """Take what came too late out of the way, and say so."""
        for number, late in list(self._late.items()):
            for outcome in self._pull(number):
                self._late.pop(number, None)
                if not isinstance(outcome, Failure):
                    log.warning("%s: a late answer to %s was dropped", late.who, late.what)


def _is_passing(error: httpx.HTTPError) -> bool:
    """Tell whether the SuperLink itself was in trouble, as when its database is locked."""
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500


def _reason(error: Error) -> str:
    known = _KNOWN_REASONS.get(error.code)
    return known or _line(error.reason or f"error {error.code}")


def _line(value: object) -> str:
    """Return a stranger's words on one line of bounded length."""
    text = " ".join(str(value).split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= 300 else shown[:297] + "…"
