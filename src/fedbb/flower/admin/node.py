"""A site's own node: it calls the server, waits for work, and comes back after an interruption."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from fedbb.errors import RunError
from fedbb.flower.admin.doctor import clock
from fedbb.flower.admin.health import Call, call
from fedbb.flower.admin.local import LOOPBACK, free_port, node_command
from fedbb.flower.admin.paths import SiteFolder, split_address
from fedbb.flower.admin.processes import Group, Program, environment

AGAIN = 10.0
"""Seconds until an ended node is started again."""

UNKNOWN = "[code: 2004]"
MARKUP = re.compile(r"\x1b\[[0-9;]*m")
ROUND = re.compile(r", ROUND (round \d+)\]")
TRAINS = "trains"
TOLD = (
    (re.compile(r"SuperNode ID: \d+"), "online"),
    (re.compile(r"Receiving: query.card message"), "tells its card: number of samples, evenness"),
    (re.compile(r"Receiving: query.number message"), "tells who it is, and no figure"),
    (re.compile(r", ROUND (.+, stage \w+)\]"), "secure sum, {0}"),
    (re.compile(r"Receiving: train message"), TRAINS),
    (re.compile(r"Receiving: evaluate message"), "scores the model on its own test data"),
    (re.compile(r"Sent successfully"), "has answered"),
    (re.compile(r"Connection attempt failed"), "the server does not answer; trying again"),
    (re.compile(r"Connection successful after"), "the server answers again"),
)


def join(site: SiteFolder) -> Iterator[str]:
    """Keep a site's node running while the generator is drawn from; yield what happens."""
    settings = site.settings()
    for path in (site.key, site.ca):
        if not path.exists():
            raise RunError(f"{path} is missing; see README.md in {site.path}")
    yield f"calling {settings['server']} as client {settings['client']}; all of it in {site.log}"
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
            why = explain(running.output(begun), call(host, port, site.ca))
            if why != last:
                yield f"{why}; trying again every {AGAIN:.0f} s"
            last = why
            time.sleep(AGAIN)


def _watch(running: Program, place: int) -> Iterator[str]:
    """Yield what the log of a node tells, in few words, until the node ends."""
    last, round_told = None, ""
    with running.log.open(encoding="utf-8", errors="replace") as log:
        log.seek(place)
        while running.is_running():
            for line in log:
                if match := ROUND.search(line):
                    round_told = f"{match[1]}: "
                words = _shorten(line)
                if words is not None and words != last:
                    yield round_told + words if words == TRAINS else words
                    last = words
            time.sleep(0.3)


def _shorten(line: str) -> str | None:
    plain = MARKUP.sub("", line)
    for pattern, words in TOLD:
        if match := pattern.search(plain):
            return words.format(*match.groups())
    return None


def explain(said: str, answer: Call) -> str:
    """Say why a node ended, or refuse to go on if it would only end again.

    Flower's server turns away whose clock is off with a bare 401, so ours is held against it.
    """
    if answer.failure == "untrusted" or "SSL/TLS handshake error" in said:
        raise RunError(
            f"the server is not trusted: {answer.told or 'TLS failed'}; "
            "`fedbb flower doctor` on this folder tells what to do"
        )
    for finding in clock(answer):
        if finding.level == "bad":
            return f"the server refuses this site, whose clock is {finding.told.partition(':')[0]}"
    if UNKNOWN in said:
        return (
            "the server does not know this site's key (send node.pub to its staff), or holds the "
            "site for still connected, which passes within a minute"
        )
    return "the node ended"
