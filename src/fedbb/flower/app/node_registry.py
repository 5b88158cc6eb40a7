"""Which Flower node is which client: learned from the nodes' client infos, checked every round."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import RecordDict

from fedbb.errors import ReplyError, RunError
from fedbb.flower.app.serde import VERSIONS, Outline, unpack_client_info, unpack_measured
from fedbb.flower.app.transport import Failure, GridTransport
from fedbb.methods import Method, fedavg
from fedbb.records import ClientInfo, IntArray, LabelCounts
from fedbb.rounds.replies import check_client_info, check_measured
from fedbb.rounds.server_steps import measure_counts, sum_measured

log = logging.getLogger("fedbb")

PLAIN_METHOD = fedavg()

POLL_SECONDS = 0.5
"""Seconds between two searches for nodes that are still missing."""

RETRY_SECONDS = 30.0
"""Seconds after which a node whose client info was rejected is asked again."""

COMPARED = {
    "task": "task",
    "classes": "classes",
    "channels": "channels",
    "shape": "the shape of an input",
    "dtype": "the type of inputs",
    "public": "the SHA-256 of public inputs",
}
"""What must be the same in the outlines of all sites, and its name in messages."""


@dataclass(frozen=True)
class _Rejection:
    connected_at: str
    when: float
    reason: str


@dataclass(eq=False)
class NodeRegistry:
    """The known clients, and the nodes at which they were last seen.

    Client infos are fixed once the run has begun: the weights were computed from them, so a client
    that reports another info later is rejected.

    Args:
        transport: how nodes are asked.
        measured: whether the method's weighting needs a dispersion.
        hidden: whether the run is private; sites then report their client number alone.
        patience: seconds that a node gets to report its info, which may include loading its data.
        key_clients: the client of each registered node key, by the SHA-256 of the key. A node with
            one of these keys can be that client only, and that client no other node. Empty if the
            keys of sites are not known.
        method: its server steps may measure the labels of every client.
        label_counts: whether the label counts themselves are measured, whatever the method.
    """

    transport: GridTransport
    measured: bool
    hidden: bool = False
    patience: float = 60.0
    key_clients: Mapping[str, int] = field(default_factory=dict)
    infos: dict[int, ClientInfo] = field(default_factory=dict)
    outlines: dict[int, Outline] = field(default_factory=dict)
    outline: Outline | None = None
    fixed: bool = False
    method: Method = PLAIN_METHOD
    label_counts: bool = False
    _counts: dict[int, dict[str, IntArray]] = field(default_factory=dict)
    _number: int = 0
    _nodes: dict[int, int] = field(default_factory=dict)
    _connected_at: dict[int, str] = field(default_factory=dict)
    _rejected: dict[int, _Rejection] = field(default_factory=dict)

    def fix(self, infos: Sequence[ClientInfo], outline: Outline) -> None:
        """Take the clients of an earlier run as given."""
        self.infos = {info.client: info for info in infos}
        self.outline, self.fixed = outline, True

    def gather(self, number: int, wait: float) -> list[ClientInfo]:
        """Return the infos of clients 0 to `number` - 1 once all are connected.

        With number 0, take the clients that are connected first.
        """
        end = time.monotonic() + wait
        self._number = number
        while True:
            present = self._identify_nodes(strict=True)
            wanted = number or len(present)
            missing = [client for client in range(wanted) if client not in present]
            if wanted and not missing:
                break
            if time.monotonic() >= end:
                raise RunError(self._describe_missing(missing, wait))
            time.sleep(POLL_SECONDS)
        self.fixed = True
        return [self.infos[client] for client in range(wanted)]

    def measured_sums(self) -> dict[str, IntArray]:
        """Return the sums over all clients of what they measured of their labels."""
        return sum_measured(self._counts[client] for client in sorted(self._counts))

    def measured_like(self, classes: int) -> dict[str, IntArray]:
        """Return integers with the names and shapes of what a client measures."""
        ones = np.ones(classes)
        counts = LabelCounts(ones, ones, classes)
        return measure_counts(self.method, counts, label_counts=self.label_counts)

    def await_clients(self, wait: float) -> None:
        """Wait for the clients of a resumed run, and continue without those that stay away."""
        self.find(sorted(self.infos), wait, strict=True)

    def find(
        self, clients: Sequence[int], wait: float = 0.0, *, strict: bool = False
    ) -> dict[int, int]:
        """Return the nodes of those of these clients that are connected.

        Args:
            clients: whom to find; nodes that might be one of them are asked for their info.
            wait: seconds to wait for those that are missing.
            strict: whether a node that contradicts what is known stops the run; otherwise it is
                left out.
        """
        end = time.monotonic() + wait
        while True:
            present = self._present(self.transport.nodes())
            if not all(client in present for client in clients):
                present = self._identify_nodes(strict=strict)
            if all(client in present for client in clients) or time.monotonic() >= end:
                return {client: present[client] for client in clients if client in present}
            time.sleep(POLL_SECONDS)

    def _identify_nodes(self, *, strict: bool) -> dict[int, int]:
        """Ask unknown nodes for their info, and return the nodes of all connected clients."""
        connected = self.transport.nodes()
        self._present(connected)
        known = set(self._nodes.values())
        unknown = [
            node
            for node in sorted(connected)
            if node not in known and not self._is_rejected(node, connected[node])
        ]
        if unknown:
            keys = self.transport.node_keys() if self.key_clients else {}
            contents = {node: RecordDict() for node in unknown}
            kind = "query.number" if self.hidden else "query.info"
            replies = self.transport.send_and_receive(
                kind, contents, self.patience, "client information"
            )
            for node, reply in replies:
                self._take(node, connected[node], reply, keys.get(node, ""), strict=strict)
        return dict(self._nodes)

    def _present(self, connected: dict[int, str]) -> dict[int, int]:
        """Return the node of every known client that stayed connected since it was identified.

        One that reconnected is asked again: it may have other data or be another client.
        """
        for client, node in list(self._nodes.items()):
            if connected.get(node) != self._connected_at[node]:
                del self._nodes[client], self._connected_at[node]
                self.transport.names.pop(node, None)
        return dict(self._nodes)

    def _is_rejected(self, node: int, connected_at: str) -> bool:
        rejection = self._rejected.get(node)
        return (
            rejection is not None
            and rejection.connected_at == connected_at
            and time.monotonic() - rejection.when < RETRY_SECONDS
        )

    def _take(
        self, node: int, connected_at: str, reply: RecordDict | Failure, key: str, *, strict: bool
    ) -> None:
        try:
            if isinstance(reply, Failure):
                raise ReplyError(reply.reason)
            figures, outline = unpack_client_info(reply)
            info = self._read_info(figures)
            self._check_claim(node, info.client, key)
            counts = self._read_counts(reply, info, outline)
            try:
                self._check(node, info, outline)
            except RunError as error:
                if strict:
                    raise
                raise ReplyError(str(error)) from error
        except ReplyError as error:
            log.warning("node %s is left out: %s", node, error)
            self._rejected[node] = _Rejection(connected_at, time.monotonic(), str(error))
            return
        self._rejected.pop(node, None)
        self._nodes[info.client], self._connected_at[node] = node, connected_at
        self.infos[info.client], self.outlines[info.client] = info, outline
        self._counts[info.client] = counts
        self.outline = self.outline or outline
        self.transport.names[node] = f"client {info.client}"
        log.info("client %d is node %d", info.client, node)
        if outline.versions != VERSIONS:
            log.warning(
                "client %d runs %s and the server %s: results may differ in their last bits",
                info.client,
                outline.versions,
                VERSIONS,
            )

    def _read_info(self, figures: Mapping[str, object]) -> ClientInfo:
        if self.hidden:
            # The server of a private run must not learn sizes, not even by mistake.
            if figures["samples"] is not None:
                raise ReplyError("it reports a size, which a private run must not know")
            return check_client_info(figures["client"], 0, figures["dispersion"], measured=False)
        return check_client_info(**figures, measured=self.measured)

    def _read_counts(
        self, reply: RecordDict, info: ClientInfo, outline: Outline
    ) -> dict[str, IntArray]:
        """Return what a client measured for the server steps; a private run takes it in a sum."""
        if self.hidden:
            return {}
        like = self.measured_like(len(outline.classes))
        return check_measured(unpack_measured(reply), like, f"info of client {info.client}")

    def _check_claim(self, node: int, client: int, key: str) -> None:
        """Reject a node that says it is a client that it is not; the others go on."""
        owner, other = self.key_clients.get(key), self._nodes.get(client)
        if owner is not None and owner != client:
            raise ReplyError(
                f"it says it is client {client}, and its node key is registered for client {owner}"
            )
        if owner is None and client in self.key_clients.values():
            raise ReplyError(f"it says it is client {client}, whose registered node key is another")
        if other is not None and other != node:
            raise ReplyError(f"it says it is client {client}, which node {other} is already")
        if self._number and client >= self._number:
            raise ReplyError(f"it says it is client {client}, and there are {self._number}, from 0")

    def _check(self, node: int, info: ClientInfo, outline: Outline) -> None:
        """Reject a node that contradicts what is already known."""
        client, known = info.client, self.infos.get(info.client)
        if self.fixed and known is None:
            raise RunError(f"node {node} says it is client {client}, which the run does not have")
        if self.fixed and known != info:
            raise RunError(
                f"client {client} has other data than when the run began: {_describe(known)} then, "
                f"{_describe(info)} now"
            )
        self._check_outline(client, outline)

    def _check_outline(self, client: int, outline: Outline) -> None:
        """Reject a client whose data has another form than that of the rest."""
        known = self.outline or outline
        for field_name, title in COMPARED.items():
            here, there = getattr(known, field_name), getattr(outline, field_name)
            # Runs and sites of older versions report neither shape nor type.
            unknown = field_name in ("shape", "dtype") and not (here and there)
            if here != there and not unknown:
                raise RunError(
                    f"client {client} has other data than the rest: {title} is {there!r} there "
                    f"and {here!r} elsewhere"
                )

    def _describe_missing(self, missing: Sequence[int], wait: float) -> str:
        names = ", ".join(str(client) for client in missing) or "all"
        reasons = [f"node {node}: {found.reason}" for node, found in self._rejected.items()]
        details = f" ({'; '.join(reasons)})" if reasons else ""
        return f"after {wait:g} s these clients are still missing: {names}{details}"


def _describe(info: ClientInfo | None) -> str:
    assert info is not None
    spread = "" if info.dispersion is None else f" of dispersion {info.dispersion:.6g}"
    return f"{info.samples} samples{spread}"
