"""A site's own node: it connects to the server, waits for work, and reconnects after a failure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from fedbb.errors import RunError
from fedbb.flower.admin.control import Health, check_health
from fedbb.flower.admin.doctor import check_clock
from fedbb.flower.admin.local import LOOPBACK, free_port, node_command
from fedbb.flower.admin.paths import SiteFolder, split_address
from fedbb.flower.admin.processes import Group, Program, environment

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


def join(site: SiteFolder) -> Iterator[str]:
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
            why = explain(running.output(begun), check_health(host, port, site.ca))
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


def explain(output: str, health: Health) -> str:
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
