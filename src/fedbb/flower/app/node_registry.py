"""Which node is which client: learned from the cards, and looked up again in every round."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import RecordDict

from fedbb.errors import ReplyError, RunError
from fedbb.flower.app.serde import Outline, unpack_card
from fedbb.flower.app.site import VERSIONS
from fedbb.flower.app.transport import Failure, Post
from fedbb.records import ClientInfo
from fedbb.rounds.replies import check_client_info

log = logging.getLogger("fedbb")

PAUSE = 0.5
"""Seconds between looks for nodes that are still missing."""

AGAIN = 30.0
"""Seconds after which a node whose card could not be used is asked once more."""


@dataclass(frozen=True)
class _Refusal:
    joined: str
    when: float
    reason: str


@dataclass(eq=False)
class Roll:
    """The clients that are known, and the nodes they were last seen at.

    `measured` tells whether the method's weighting asks for a dispersion. Cards are fixed once
    the run has begun: a client whose card has changed is not the one that was weighed. A node is
    given `patience` seconds to tell its card, for which it may have to open large data. When
    `hidden`, sites tell their number alone, and cards are empty.
    """

    post: Post
    measured: bool
    hidden: bool = False
    patience: float = 60.0
    infos: dict[int, ClientInfo] = field(default_factory=dict)
    outline: Outline | None = None
    fixed: bool = False
    _nodes: dict[int, int] = field(default_factory=dict)
    _joined: dict[int, str] = field(default_factory=dict)
    _refused: dict[int, _Refusal] = field(default_factory=dict)

    def fix(self, infos: Sequence[ClientInfo], outline: Outline) -> None:
        """Take the clients of a run that began earlier for given."""
        self.infos = {info.client: info for info in infos}
        self.outline, self.fixed = outline, True

    def gather(self, number: int, wait: float) -> list[ClientInfo]:
        """Return the cards of so many clients once all are there; 0 takes those that come first."""
        end = time.monotonic() + wait
        while True:
            present = self._look(strict=True)
            wanted = number or len(present)
            missing = [client for client in range(wanted) if client not in present]
            if wanted and not missing:
                break
            if number:
                self._check_numbers(number)
            if time.monotonic() >= end:
                raise RunError(self._tell_missing(missing, wait))
            time.sleep(PAUSE)
        self.fixed = True
        return [self.infos[client] for client in range(wanted)]

    def meet_again(self, wait: float) -> None:
        """Wait for the clients of a run that is resumed; go on without those that stay away."""
        self.find(sorted(self.infos), wait, strict=True)

    def find(
        self, clients: Sequence[int], wait: float = 0.0, *, strict: bool = False
    ) -> dict[int, int]:
        """Return the nodes of those of these clients that are connected, after some waiting.

        A node that may be one of them is asked who it is. When strict, a node that contradicts
        what is known stops the run; else it is left out.
        """
        end = time.monotonic() + wait
        while True:
            present = self._present(self.post.nodes())
            if not all(client in present for client in clients):
                present = self._look(strict=strict)
            if all(client in present for client in clients) or time.monotonic() >= end:
                return {client: present[client] for client in clients if client in present}
            time.sleep(PAUSE)

    def _look(self, *, strict: bool) -> dict[int, int]:
        """Ask the nodes that nobody knows yet, and return those of all clients that are there."""
        connected = self.post.nodes()
        self._present(connected)
        known = set(self._nodes.values())
        strangers = [
            node
            for node in sorted(connected)
            if node not in known and not self._is_refused(node, connected[node])
        ]
        if strangers:
            letters = {node: RecordDict() for node in strangers}
            kind = "query.number" if self.hidden else "query.card"
            for node, answer in self.post.exchange(kind, letters, self.patience, "cards"):
                self._take(node, connected[node], answer, strict=strict)
        return dict(self._nodes)

    def _present(self, connected: dict[int, str]) -> dict[int, int]:
        """Return the node of every known client that is connected and never left since.

        One that came back is asked anew, for it may have other data or be somebody else.
        """
        for client, node in list(self._nodes.items()):
            if connected.get(node) != self._joined[node]:
                del self._nodes[client], self._joined[node]
                self.post.names.pop(node, None)
        return dict(self._nodes)

    def _is_refused(self, node: int, joined: str) -> bool:
        refusal = self._refused.get(node)
        return (
            refusal is not None
            and refusal.joined == joined
            and time.monotonic() - refusal.when < AGAIN
        )

    def _take(self, node: int, joined: str, answer: RecordDict | Failure, *, strict: bool) -> None:
        try:
            if isinstance(answer, Failure):
                raise ReplyError(answer.reason)
            figures, outline = unpack_card(answer)
            info = self._read_card(figures)
            try:
                self._check(node, info, outline)
            except RunError as error:
                if strict:
                    raise
                raise ReplyError(str(error)) from error
        except ReplyError as error:
            log.warning("node %s is left out: %s", node, error)
            self._refused[node] = _Refusal(joined, time.monotonic(), str(error))
            return
        self._refused.pop(node, None)
        self._nodes[info.client], self._joined[node] = node, joined
        self.infos[info.client] = info
        self.outline = self.outline or outline
        self.post.names[node] = f"client {info.client}"
        log.info("client %d is node %d", info.client, node)
        if outline.versions != VERSIONS:
            log.warning(
                "client %d runs %s and the server %s: results may differ in their last bits",
                info.client,
                outline.versions,
                VERSIONS,
            )

    def _read_card(self, figures: Mapping[str, object]) -> ClientInfo:
        if self.hidden:
            # None for "nobody asked": whoever tells more is refused.
            if figures["samples"] is not None:
                raise ReplyError("its card tells a size, which a private run must not know")
            return check_client_info(figures["client"], 0, figures["dispersion"], measured=False)
        return check_client_info(**figures, measured=self.measured)

    def _check(self, node: int, info: ClientInfo, outline: Outline) -> None:
        """Refuse whoever contradicts what is known already."""
        client, other = info.client, self._nodes.get(info.client)
        if other is not None and other != node:
            raise RunError(f"nodes {other} and {node} both say they are client {client}")
        known = self.infos.get(client)
        if self.fixed and known is None:
            raise RunError(
                f"node {node} says it is client {client}, of which the run knows nothing"
            )
        if self.fixed and known != info:
            raise RunError(
                f"client {client} has other data than when the run began: {_words(known)} then, "
                f"{_words(info)} now"
            )
        for field_name in ("task", "classes", "channels"):
            here = getattr(self.outline or outline, field_name)
            there = getattr(outline, field_name)
            if here != there:
                raise RunError(
                    f"client {client} has other data than the rest: {field_name} is {there!r} "
                    f"there and {here!r} elsewhere"
                )

    def _check_numbers(self, number: int) -> None:
        for client, node in self._nodes.items():
            if client >= number:
                raise RunError(
                    f"node {node} says it is client {client}, and there are {number}, from 0"
                )

    def _tell_missing(self, missing: Sequence[int], wait: float) -> str:
        names = ", ".join(str(client) for client in missing) or "all"
        reasons = [f"node {node}: {refusal.reason}" for node, refusal in self._refused.items()]
        told = f" ({'; '.join(reasons)})" if reasons else ""
        return f"after {wait:g} s these clients are still missing: {names}{told}"


def _words(info: ClientInfo | None) -> str:
    assert info is not None
    spread = "" if info.dispersion is None else f" of dispersion {info.dispersion:.6g}"
    return f"{info.samples} samples{spread}"
