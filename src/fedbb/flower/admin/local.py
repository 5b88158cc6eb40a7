"""What this machine runs: a whole federation for trials, or a site's own node."""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from fedbb.errors import RunError
from fedbb.flower.admin.certificates import check_server, make_certificates
from fedbb.flower.admin.control import (
    NEW_KEY,
    Control,
    Health,
    Run,
    admit,
    check_health,
    find_node,
    wait_until_healthy,
)
from fedbb.flower.admin.doctor import check_clock
from fedbb.flower.admin.paths import (
    FederationFolder,
    Scalar,
    SiteFolder,
    join_address,
    split_address,
    toml_line,
)
from fedbb.flower.admin.processes import Group, Program, environment
from fedbb.flower.admin.templates import make_federation

START_SECONDS = 120.0
LOOPBACK = "127.0.0.1"
SUPERNODE = "fedbb.flower.admin.supernode"
SUPERLINK = "fedbb.flower.admin.superlink"

RESTART_SECONDS = 10.0
"""Seconds until a node that ended is started again."""

UNKNOWN = "[code: 2004]"
MARKUP = re.compile(r"\x1b\[[0-9;]*m")
ROUND = re.compile(r", ROUND (round \d+)\]")
TRAINS = "trains"
MESSAGES = (
    (re.compile(r"SuperNode ID: \d+"), "online"),
    (re.compile(r"Receiving: query.info message"), "reports its number of samples and dispersion"),
    (re.compile(r"Receiving: query.number message"), "reports its client number, and nothing else"),
    (re.compile(r", ROUND (.+, stage \w+)\]"), "secure sum, {0}"),
    (re.compile(r"Receiving: train message"), TRAINS),
    (re.compile(r"Receiving: evaluate message"), "scores the model on its own test data"),
    (re.compile(r"Sent successfully"), "has replied"),
    (re.compile(r"Connection attempt failed"), "the server does not respond; trying again"),
    (re.compile(r"Connection successful after"), "the server responds again"),
)

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
            make_federation(self.folder, self._sites)
            make_certificates(self.folder, self._names(), keys=self._sites)
            check_server(self.folder, self._names())
            stack.enter_context(self._group)
            stack.callback(self._stop)
            self.superlink = self._group.start(
                "superlink", self._command(), self.environment, self.folder.log
            )
            self._wait_for_superlink()
            self.control = stack.enter_context(Control(self.address, self.folder.ca))
            admit(self.folder, self.control)
            self.nodes = [self._start_node(number) for number in range(self._sites)]
            self.wait_for_nodes(self.nodes)
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
            for node in nodes:
                if not node.program.is_running():
                    raise RunError(f"the node of {node.name} ended: {_ending(node.program)}")
            if time.monotonic() > limit:
                raise RunError(f"not online after {seconds:.0f} s: {', '.join(sorted(missing))}")
            time.sleep(0.2)

    def online(self) -> set[str]:
        """Return the names of the nodes that are online."""
        return {node.name for node in self.control.nodes() if node.status == "online"}

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


def run_node(site: SiteFolder) -> Iterator[str]:
    """Keep a site's node running while the generator is consumed; yield what happens."""
    settings = site.settings()
    for path in (site.key, site.ca):
        if not path.exists():
            raise RunError(f"{path} is missing; see README.md in {site.path}")
    yield f"connecting to {settings['server']} as client {settings['client']}; log: {site.log}"
    last = ""
    with Group() as group:
        while True:
            command = node_command(
                site, site.node_config(), settings["server"], free_port(LOOPBACK)
            )
            begun = site.log.stat().st_size if site.log.exists() else 0
            running = group.start("node", command, environment(site.state / "flwr"), site.log)
            yield from _watch(running, begun)
            running.kill()
            host, port = split_address(settings["server"], site.settings_file)
            why = explain_ending(running.output(begun), check_health(host, port, site.ca))
            if why != last:
                yield f"{why}; trying again every {RESTART_SECONDS:.0f} s"
            last = why
            time.sleep(RESTART_SECONDS)


def _watch(running: Program, place: int) -> Iterator[str]:
    """Yield a summary of each new line in the log of a node until the node ends."""
    last, current_round = None, ""
    with running.log.open(encoding="utf-8", errors="replace") as log:
        log.seek(place)
        while running.is_running():
            for line in log:
                if match := ROUND.search(line):
                    current_round = f"{match[1]}: "
                summary = _summarize(line)
                if summary is not None and summary != last:
                    yield current_round + summary if summary == TRAINS else summary
                    last = summary
            time.sleep(0.3)


def _summarize(line: str) -> str | None:
    plain = MARKUP.sub("", line)
    for pattern, summary in MESSAGES:
        if match := pattern.search(plain):
            return summary.format(*match.groups())
    return None


def explain_ending(output: str, health: Health) -> str:
    """Return why a node ended; RunError if a restart would not help.

    Flower's server rejects a node with a wrong clock by a bare 401, so the clocks are compared.
    """
    if health.failure == "untrusted" or "SSL/TLS handshake error" in output:
        raise RunError(
            f"the server is not trusted: {health.details or 'TLS failed'}; "
            "run `fedbb flower doctor` on this folder for advice"
        )
    for finding in check_clock(health):
        if finding.level == "bad":
            return f"the server rejects this site: its clock is {finding.message.partition(':')[0]}"
    if UNKNOWN in output:
        return (
            "the server does not know this site's key (send node.pub to its staff), or it still "
            "considers the site connected, which lasts up to a minute"
        )
    return "the node ended"
