"""A client of a running SuperLink: its health, its nodes and its runs."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal, Self

import httpx

from fedbb.errors import RunError
from fedbb.flower import internals
from fedbb.flower.admin.certificates import load_site_key, public_bytes
from fedbb.flower.admin.paths import FederationFolder, Scalar, SiteFolder

Failure = Literal["refused", "unknown", "silent", "untrusted", "other"]


@dataclass(frozen=True)
class Health:
    """Why a request failed, or by how many seconds our clock is ahead of the server's."""

    failure: Failure | None
    details: str = ""
    ahead: float | None = None


def check_health(host: str, port: int, ca: Path, timeout: float = 5.0) -> Health:
    """Ask a SuperLink for its health over TLS.

    Args:
        host: the server's name or address.
        port: the server's port.
        ca: the certificate of the federation's authority.
        timeout: seconds to wait for the response.
    """
    try:
        trust = ssl.create_default_context(cafile=str(ca))
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=trust)
        try:
            connection.request("GET", "/health")
            response = connection.getresponse()
        finally:
            connection.close()
    except ssl.SSLCertVerificationError as error:
        return Health("untrusted", f"its certificate is not accepted: {error.verify_message}")
    except ssl.SSLError as error:
        return Health("other", f"no TLS there, or a certificate of ours is damaged: {error.reason}")
    except socket.gaierror:
        return Health("unknown", "no machine of this name is known")
    except ConnectionRefusedError:
        return Health("refused", "no program listens there")
    except TimeoutError:
        return Health("silent", f"no response within {timeout:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        return Health("other", str(error) or type(error).__name__)
    if response.status != http.client.OK:
        return Health("other", f"responds with status {response.status}")
    date = response.headers.get("date")
    if date is None:
        return Health(None)
    # The server sends whole seconds, so half a second has passed on average.
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds() - 0.5
    return Health(None, ahead=ahead)


def wait_until_healthy(host: str, port: int, ca: Path, seconds: float) -> bool:
    """Wait for a SuperLink to respond, and tell whether it does."""
    limit = time.monotonic() + seconds
    while not (healthy := check_health(host, port, ca).failure is None):
        if time.monotonic() >= limit:
            break
        time.sleep(0.1)
    return healthy


COMPLETED = "finished:completed"
DISMISSED = "unregistered"


@dataclass(frozen=True)
class Node:
    """A registered site: online if its node is connected."""

    identity: int
    name: str
    status: str
    key: bytes
    since: str


@dataclass(frozen=True)
class Run:
    """A run as Flower knows it; a status is "running", "finished:completed" or similar."""

    identity: int
    status: str
    details: str
    config: Mapping[str, Scalar]
    begun: str
    ended: str
    sent: int
    received: int

    @property
    def is_over(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self.status.startswith("finished")


class Control:
    """A connection to the SuperLink at an address, verified by the authority's certificate."""

    def __init__(self, address: str, ca: Path) -> None:
        self.address = address
        try:
            self._ca = ca.read_bytes()
        except OSError as error:
            raise RunError(f"{ca} cannot be read: {error.strerror}") from error
        version = internals.RuntimeVersionHttpInterceptor(component_name="fedbb")
        self._client = internals.ControlHttpClient.from_server_address(
            address, False, self._ca, [version]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def nodes(self) -> list[Node]:
        """Return the registered nodes by name, without those that were dismissed."""
        return [node for node in self.all_nodes() if node.status != DISMISSED]

    def all_nodes(self) -> list[Node]:
        """Return all nodes that were ever registered, by name."""
        with self._explained():
            response = self._client.ListNodes(internals.ListNodesRequest())
        nodes = [
            Node(info.node_id, info.name, info.status, info.public_key, info.last_activated_at)
            for info in response.nodes_info
        ]
        return sorted(nodes, key=lambda node: (len(node.name), node.name))

    def register(self, key: bytes, name: str) -> int:
        """Register the public key of a site and return the node id."""
        with self._explained():
            response = self._client.RegisterNode(
                internals.RegisterNodeRequest(public_key=key, name=name)
            )
        return int(response.node_id)

    def unregister(self, node: int) -> None:
        """Remove a node from the federation; its key is never accepted again."""
        with self._explained():
            self._client.UnregisterNode(internals.UnregisterNodeRequest(node_id=node))

    def release(self, node: int, key: Path) -> None:
        """Deactivate a node that ended without doing so itself, with its own key.

        Flower otherwise considers it online for a minute, and rejects it if it reconnects.
        """
        private = load_site_key(key)
        auth = internals.NodeAuthHttpInterceptor(private, private.public_key())
        version = internals.RuntimeVersionHttpInterceptor(component_name="SuperNode")
        with (
            internals.FleetHttpClient.from_server_address(
                self.address, False, self._ca, interceptors=[version, auth]
            ) as client,
            self._explained(),
        ):
            client.DeactivateNode(internals.DeactivateNodeRequest(node_id=node))

    def start(self, app: Path, config: Mapping[str, Scalar]) -> int:
        """Start a run of the app in a folder and return its id."""
        try:
            content = internals.build_fab_from_disk(app)
        except (OSError, ValueError) as error:
            raise RunError(f"{app} is not a Flower app that can be run: {error}") from error
        bundle = internals.Fab(hashlib.sha256(content).hexdigest(), content, {})
        request = internals.StartRunRequest(
            fab=internals.fab_to_proto(bundle),
            override_config=internals.user_config_to_proto(dict(config)),
        )
        with self._explained():
            return int(self._client.StartRun(request).run_id)

    def stop(self, run: int) -> None:
        """Stop a run."""
        with self._explained():
            self._client.StopRun(internals.StopRunRequest(run_id=run))

    def runs(self, run: int | None = None) -> list[Run]:
        """Return the last runs, newest first, or the one with this id."""
        request = (
            internals.ListRunsRequest() if run is None else internals.ListRunsRequest(run_id=run)
        )
        with self._explained():
            response = self._client.ListRuns(request)
        found = [_run(proto) for proto in response.run_dict.values()]
        return sorted(found, key=lambda entry: entry.begun, reverse=True)

    def run(self, run: int) -> Run:
        """Return the status of a run."""
        found = self.runs(run)
        if not found:
            raise RunError(f"the server at {self.address} knows no run {run}")
        return found[0]

    def log(self, run: int, after: float = 0.0) -> Iterator[tuple[str, float]]:
        """Yield the log of a run's server app, with its time, until the run is over."""
        request = internals.StreamLogsRequest(run_id=run, after_timestamp=after)
        with self._explained():
            for response in self._client.StreamLogs(request):
                yield response.log_output, response.latest_timestamp

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of the connection into a RunError."""
        try:
            yield
        except httpx.HTTPStatusError as error:
            raise RunError(
                f"the server at {self.address} rejected the request: {_reason(error)}"
            ) from error
        except httpx.HTTPError as error:
            raise RunError(f"no server responds at {self.address}: {error}") from error


def _run(proto: Any) -> Run:
    run = internals.run_from_proto(proto)
    status = ":".join(part for part in (run.status.status, run.status.sub_status) if part)
    return Run(
        identity=run.run_id,
        status=status,
        details=run.status.details or "",
        config=dict(run.override_config),
        begun=run.pending_at,
        ended=run.finished_at,
        sent=run.bytes_sent,
        received=run.bytes_recv,
    )


def _reason(error: httpx.HTTPStatusError) -> str:
    found = internals.FlowerError.from_json(error.response.text)
    if found is None:
        return f"status {error.response.status_code}"
    return " ".join(filter(None, [f"[code: {found.code}]", found.message, found.public_details]))


NEW_KEY = (
    "to admit it again, delete node.key and node.pub in {folder} and make a new key with "
    "`fedbb flower certs`"
)


def admit(folder: FederationFolder, control: Control) -> list[str]:
    """Register the key of every site that has one and is not registered; return their names.

    A site that was dismissed stays out: Flower accepts no key twice.
    """
    known = {node.key for node in control.all_nodes()}
    admitted = []
    for site in folder.sites():
        if not site.public_key.exists():
            continue
        key = public_bytes(site.public_key)
        if key not in known:
            control.register(key, site.path.name)
            admitted.append(site.path.name)
    return admitted


def node_keys(folder: FederationFolder) -> dict[str, str]:
    """Return the setting that ties the node key of each site to its client number.

    A registered site can then take part as its own client only.
    """
    keyed = [site for site in folder.sites() if site.public_key.exists()]
    clients = {
        hashlib.sha256(public_bytes(site.public_key)).hexdigest(): int(site.settings()["client"])
        for site in keyed
    }
    return {"node-keys": json.dumps(clients)}


def dismissed(folder: FederationFolder, control: Control) -> list[str]:
    """Return the names of sites with a folder here whose key was dismissed."""
    gone = {node.key for node in control.all_nodes() if node.status == DISMISSED}
    keyed = [site for site in folder.sites() if site.public_key.exists()]
    return [site.path.name for site in keyed if public_bytes(site.public_key) in gone]


def dismiss(control: Control, name: str) -> None:
    """Remove a site from the federation."""
    nodes = control.nodes()
    for node in nodes:
        if node.name == name:
            control.unregister(node.identity)
            return
    names = ", ".join(node.name for node in nodes) or "none"
    raise RunError(f"no site {name} is registered at {control.address}; registered: {names}")


def find_node(control: Control, site: SiteFolder) -> Node | None:
    """Return the node of a site, None if its key is not registered."""
    key = public_bytes(site.public_key)
    return next((node for node in control.nodes() if node.key == key), None)
