"""A whole federation on this machine: a SuperLink with TLS and node keys, and a node per site."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from fedbb._util.files import check_free, check_space, writing
from fedbb.errors import RunError
from fedbb.flower.admin.certificates import check_server, make_certificates
from fedbb.flower.admin.control import NEW_KEY, Control, Run, admit, find_node, wait_until_healthy
from fedbb.flower.admin.paths import FederationFolder, Scalar, SiteFolder, join_address, toml_line
from fedbb.flower.admin.processes import Group, Program, environment
from fedbb.flower.admin.templates import make_federation

START_SECONDS = 120.0

SPACE = 16 * 2**20
"""Bytes that a federation needs at least when it starts: for databases and logs, without models."""

RESERVE = 2**20
"""Bytes without which there is no use in waiting for its programs."""

LOOPBACK = "127.0.0.1"
SUPERNODE = "fedbb.flower.admin.supernode"
SUPERLINK = "fedbb.flower.admin.superlink"
NodeConfig = Callable[[int], Mapping[str, Scalar]]


class LocalFederation:
    """A SuperLink and the nodes of some sites, which run while the context is open.

    The folder, certificates and keys are made if they are missing. Nodes stay registered in the
    folder's database.

    Args:
        folder: the federation's folder.
        sites: the number of sites that run on this machine.
        host: the address to listen on.
        port: the port to listen on; a free one if not given.
        node_config: returns further settings of a site's node config, such as {"data": "/path"}.
    """

    def __init__(
        self,
        folder: Path,
        sites: int,
        *,
        host: str = LOOPBACK,
        port: int | None = None,
        node_config: NodeConfig | None = None,
    ) -> None:
        self.folder = FederationFolder(Path(folder).resolve())
        self.host = host
        self.port = free_port(host) if port is None else port
        self.nodes: list[LocalNode] = []
        self._sites = sites
        self._node_config = node_config or (lambda number: {})
        self._group = Group()
        self._stack = ExitStack()

    @property
    def mark(self) -> str:
        """The mark in the environment of all processes of this federation."""
        return self._group.mark

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the server's programs."""
        return environment(self.folder.server / "flwr")

    @property
    def address(self) -> str:
        """The address at which programs on this machine reach the SuperLink."""
        return join_address(self._reachable, self.port)

    @property
    def _reachable(self) -> str:
        return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(self.host, self.host)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            check_port(self.host, self.port)
            check_space(_existing(self.folder.path), SPACE)
            with writing(self.folder.path):
                make_federation(self.folder, self._sites)
                make_certificates(self.folder, self._names(), keys=self._sites)
            for path in self._folders():
                check_space(path, SPACE)
            check_server(self.folder, self._names())
            stack.enter_context(self._group)
            stack.callback(self._stop)
            with self._naming_full_disk():
                self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def submit(self, app: Path | None, run_config: Mapping[str, Scalar]) -> int:
        """Start a run of an app, by default fedbb's own, and return its id."""
        return self.control.start(app or self.folder.app, run_config)

    def wait(self, run: int, seconds: float) -> str:
        """Wait for a run to end and return its status, such as "finished:completed"."""
        return self.wait_for(run, seconds).status

    def wait_for(self, run: int, seconds: float) -> Run:
        """Wait for a run to end and return its record."""
        limit = time.monotonic() + seconds
        while not (state := self.control.run(run)).is_over:
            if time.monotonic() > limit:
                raise TimeoutError(f"run {run} is still {state.status} after {seconds} s")
            time.sleep(1.0)  # a run takes many times longer, and the server is busy
        return state

    def start_superlink(self) -> None:
        """Start the SuperLink again, at the same port and with the nodes that it knew."""
        self.superlink.start()
        self._wait_for_superlink()

    def logs(self, name: str) -> str:
        """Return the log of "superlink" or of a site such as "site-0"."""
        if name == "superlink":
            return self.superlink.output()
        return next(node for node in self.nodes if node.name == name).program.output()

    def wait_for_nodes(self, nodes: Sequence[LocalNode], seconds: float = START_SECONDS) -> None:
        """Wait until these nodes are online; RunError names those that are not, with their log."""
        limit = time.monotonic() + seconds
        names = {node.name for node in nodes}
        while missing := names - self.online():
            self._check_free()
            for node in nodes:
                if not node.program.is_running():
                    raise RunError(f"the node of {node.name} ended: {_ending(node.program)}")
            if time.monotonic() > limit:
                raise RunError(f"not online after {seconds:.0f} s: {', '.join(sorted(missing))}")
            time.sleep(0.2)

    def online(self) -> set[str]:
        """Return the names of the nodes that are online."""
        return {node.name for node in self.control.nodes() if node.status == "online"}

    def _start(self, stack: ExitStack) -> None:
        self.superlink = self._group.start(
            "superlink", self._command(), self.environment, self.folder.log
        )
        self._wait_for_superlink()
        self.control = stack.enter_context(Control(self.address, self.folder.ca))
        admit(self.folder, self.control)
        self.nodes = [self._start_node(number) for number in range(self._sites)]
        self.wait_for_nodes(self.nodes)

    @contextmanager
    def _naming_full_disk(self) -> Iterator[None]:
        """Say in place of any other error that a disk is full, if one is."""
        try:
            yield
        except RunError:
            self._check_free()
            raise

    def _folders(self) -> list[Path]:
        """Return the folders that Flower's programs write to.

        On a full disk they wait, or end with a trace that does not name it.
        """
        return [self.folder.server, *(self.folder.site(k).path for k in range(self._sites))]

    def _check_free(self) -> None:
        for path in self._folders():
            check_free(path, RESERVE)

    def _names(self) -> list[str]:
        """Return the address to listen on, unless it stands for all addresses."""
        return [] if self.host in ("0.0.0.0", "::") else [self.host]

    def _command(self) -> list[str]:
        # -P keeps the current folder off the module path.
        return [
            *(sys.executable, "-P", "-m", SUPERLINK),
            "--host",
            self.host,
            "--port",
            str(self.port),
            "--ssl-ca-certfile",
            str(self.folder.ca),
            "--ssl-certfile",
            str(self.folder.server_certificate),
            "--ssl-keyfile",
            str(self.folder.server_key),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            "--database",
            str(self.folder.database),
        ]

    def _wait_for_superlink(self) -> None:
        limit = time.monotonic() + START_SECONDS
        while not wait_until_healthy(self._reachable, self.port, self.folder.ca, 1):
            self._check_free()
            if not self.superlink.is_running() or time.monotonic() > limit:
                raise RunError(f"the SuperLink did not start: {_ending(self.superlink)}")
        self.folder.note_address(self.address)

    def _start_node(self, number: int) -> LocalNode:
        site = self.folder.site(number)
        if not site.key.exists():
            raise RunError(
                f"{site.key} is missing: the site made its own key, and must join by itself"
            )
        if find_node(self.control, site) is None:
            raise RunError(f"{site.path.name} was dismissed; {NEW_KEY.format(folder=site.path)}")
        release(site, self.control)
        config = {**site.node_config(), **self._node_config(number)}
        command = node_command(site, config, self.address, free_port(LOOPBACK))
        variables = environment(site.state / "flwr")
        return LocalNode(
            site, self._group.start(site.path.name, command, variables, site.log), self
        )

    def _stop(self) -> None:
        """End the nodes before the server, so that they can deactivate themselves."""
        for node in self.nodes:
            node.program.process.terminate()
        for node in self.nodes:
            node.program.stop()
        self.superlink.stop()


class LocalNode:
    """The node of a site."""

    def __init__(self, site: SiteFolder, running: Program, federation: LocalFederation) -> None:
        self.site = site
        self.program = running
        self._federation = federation

    @property
    def name(self) -> str:
        """The site's name."""
        return self.site.path.name

    @property
    def pid(self) -> int:
        """The process id, which is also that of its process group."""
        return self.program.pid

    def kill(self) -> None:
        """End the node and its training at once, as a power cut would."""
        self.program.kill()

    def restart(self) -> None:
        """Start the node again and wait until it is online."""
        self.program.stop()
        release(self.site, self._federation.control)
        self.program.start()
        self._federation.wait_for_nodes([self])


def release(site: SiteFolder, control: Control) -> None:
    """Deactivate a node that was killed, so that the server lets it reconnect."""
    node = find_node(control, site)
    if node is not None and node.status == "online":
        control.release(node.identity, site.key)


def node_command(
    site: SiteFolder, config: Mapping[str, Scalar], server: str, port: int
) -> list[str]:
    """Return the command that starts a site's node; its node config is written to a file."""
    site.state.mkdir(exist_ok=True)
    settings = site.state / "node.toml"
    settings.write_text("".join(toml_line(key, value) for key, value in config.items()), "utf-8")
    return [
        *(sys.executable, "-P", "-m", SUPERNODE),
        "--superlink",
        server,
        "--root-certificates",
        str(site.ca),
        "--auth-supernode-private-key",
        str(site.key),
        "--host",
        LOOPBACK,
        "--port",
        str(port),
        "--node-config",
        str(settings),
        "--isolation",
        "process",
        "--superexec-auth-secret-file",
        str(site.state / "runtime.secret"),
    ]


def _existing(path: Path) -> Path:
    """Return the folder, or the one above in which it will be made."""
    return next(place for place in (path, *path.parents) if place.is_dir())


def free_port(host: str) -> int:
    """Return a port that is free now."""
    with socket.create_server((host, 0), family=_family(host)) as probe:
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Raise RunError if a port or address cannot be listened on."""
    try:
        socket.create_server((host, port), family=_family(host)).close()
    except OSError as error:
        raise RunError(
            f"{join_address(host, port)} cannot be listened on ({error.strerror}); "
            "choose another with --port or --host"
        ) from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _ending(ended: Program) -> str:
    lines = [line.strip() for line in ended.output().splitlines() if line.strip()]
    return f"{' / '.join(lines[-5:]) or 'no output'} (full log: {ended.log})"
