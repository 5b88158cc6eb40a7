"""Checks of the folder of a federation or a site, each with advice on what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from cryptography.exceptions import InvalidSignature
from cryptography.x509 import Certificate

from fedbb.errors import FedbbError, RunError
from fedbb.flower.admin.certificates import named_hosts, public_bytes, read_certificate
from fedbb.flower.admin.control import Health, check_health
from fedbb.flower.admin.paths import FederationFolder, SiteFolder, split_address
from fedbb.flower.admin.processes import OFFLINE
from fedbb.recipes.privacy import need_libraries

FLOWER = ((1, 41), (1, 43))
SOON = timedelta(days=30)
LITTLE, SCARCE = 2_000_000_000, 200_000_000
AHEAD, BEHIND = 5.0, 300.0
"""Seconds by which Flower lets a site's clock be ahead of or behind the server's."""

Level = Literal["ok", "warn", "bad"]


@dataclass(frozen=True)
class Finding:
    """The result of one check; `advice` says what to do unless the level is "ok"."""

    level: Level
    subject: str
    message: str
    advice: str = ""


def examine(path: Path, now: datetime | None = None) -> list[Finding]:
    """Check the folder of a federation or of a site."""
    at = now or datetime.now(UTC)
    federation, site = FederationFolder(path), SiteFolder(path)
    if federation.is_made():
        checks = [_versions(), _server(federation, at), _port(federation)]
        checks += [_site(inner, federation) for inner in federation.sites()]
    elif site.settings_file.exists():
        checks = [_versions(), _site(site, None), _authority(site, at), _reach(site)]
    else:
        raise RunError(f"{path} is neither the folder of a federation nor that of a site")
    checks += [_telemetry(os.environ), _disk(path)]
    return [finding for check in checks for finding in check]


def _versions() -> Iterator[Finding]:
    for name in ("fedbb", "flwr", "torch", "cryptography"):
        try:
            found = version(name)
        except PackageNotFoundError:
            yield Finding("bad", name, "is not installed", 'pip install "fedbb[flower]"')
            continue
        if name == "flwr" and not FLOWER[0] <= _numbers(found) < FLOWER[1]:
            yield Finding("bad", name, f"{found} is not tested", 'pip install "flwr>=1.41,<1.43"')
        else:
            yield Finding("ok", name, found)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _server(folder: FederationFolder, now: datetime) -> Iterator[Finding]:
    for path in (folder.ca, folder.server_certificate):
        yield from _certificate(path, now)
    if folder.ca.exists() and not folder.ca_key.exists():
        yield Finding("ok", folder.ca_key.name, "is kept elsewhere")
    else:
        yield from _private(folder.ca_key)
    yield from _private(folder.server_key)
    if folder.ca.exists() and folder.server_certificate.exists():
        yield from _matching(folder)


def _matching(folder: FederationFolder) -> Iterator[Finding]:
    """Check whether the server's certificate is valid for the name that sites connect to."""
    anew = f"delete {folder.server_certificate.name} and run: fedbb flower certs {folder.path}"
    try:
        authority = read_certificate(folder.ca)
        certificate = read_certificate(folder.server_certificate)
        certificate.verify_directly_issued_by(authority)
        hosts, (dialed, _) = named_hosts(certificate), folder.dialed()
    except (InvalidSignature, TypeError, ValueError):
        yield Finding("bad", "server.crt", "was signed by another authority than ca.crt", anew)
        return
    except FedbbError:
        return  # reported by another check
    if dialed in hosts:
        yield Finding("ok", "server.crt", f"is valid for {', '.join(hosts)}")
    else:
        details = f"is not valid for {dialed}, which sites connect to, but for {', '.join(hosts)}"
        yield Finding("bad", "server.crt", details, anew)


def _certificate(path: Path, now: datetime) -> Iterator[Finding]:
    if not path.exists():
        yield Finding("bad", path.name, "is missing", f"fedbb flower certs {path.parent.parent}")
        return
    try:
        yield _dates(path, read_certificate(path), now)
    except RunError as error:
        yield Finding("bad", path.name, str(error), "get it again")


def _dates(path: Path, certificate: Certificate, now: datetime) -> Finding:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    anew = f"delete {path.name} and run `fedbb flower certs` again"
    if now < begins:
        details = f"is valid only from {begins:%Y-%m-%d %H:%M} UTC; it is {now:%Y-%m-%d %H:%M}"
        return Finding("bad", path.name, details, "set this machine's clock")
    if now >= ends:
        return Finding("bad", path.name, f"expired on {ends:%Y-%m-%d %H:%M} UTC", anew)
    if now >= ends - SOON:
        return Finding("warn", path.name, f"expires on {ends:%Y-%m-%d %H:%M} UTC", anew)
    return Finding("ok", path.name, f"is valid until {ends:%Y-%m-%d}")


def _private(path: Path, subject: str | None = None) -> Iterator[Finding]:
    name = subject or path.name
    if not path.exists():
        yield Finding("bad", name, "is missing", "run: fedbb flower certs")
    elif path.stat().st_mode & 0o077:
        details = f"can be read by others (mode {path.stat().st_mode & 0o777:o})"
        yield Finding("bad", name, details, f"chmod 600 {path}")
    elif not os.access(path, os.R_OK):
        yield Finding("bad", name, "cannot be read by this user", f"change the owner of {path}")
    else:
        yield Finding("ok", name, "only its owner can read it")


def _site(site: SiteFolder, federation: FederationFolder | None) -> Iterator[Finding]:
    name = site.path.resolve().name
    try:
        config = site.node_config()
        server = split_address(site.settings()["server"], site.settings_file)
    except FedbbError as error:
        yield Finding("bad", f"{name} settings", str(error), f"correct {site.settings_file}")
        return
    if federation is not None and server != federation.dialed():
        details = f"connects to {server[0]}:{server[1]}, not to the server of federation.toml"
        yield Finding("warn", f"{name} settings", details, f"correct {site.settings_file}")
    if federation is not None and site.public_key.exists() and not site.key.exists():
        yield from _public(site, name)
        return  # the rest can be checked at the site only
    yield from _private(site.key, f"{name} key")
    yield from _identity(site, name)
    yield _data(name, config.get("data"), at_server=federation is not None)
    if not os.access(site.state, os.W_OK):
        yield Finding("bad", f"{name} state", "cannot be written", f"mkdir -p {site.state}")


def _identity(site: SiteFolder, name: str) -> Iterator[Finding]:
    """Check what private runs need, if the enrolment of the site has begun."""
    if not (site.path / "identity.key").exists():
        return
    try:
        need_libraries("masked")
        from fedbb.secagg.client_secrets import read_site_keys
        from fedbb.secagg.primitives.keys import fingerprint

        keys = read_site_keys(site.path, int(site.settings()["client"]))
    except FedbbError as error:
        yield Finding("bad", f"{name} identity", str(error), "private runs are rejected until then")
    else:
        details = f"in a roster of {len(keys.roster.members)}, signed by"
        yield Finding("ok", f"{name} identity", f"{details} {fingerprint(keys.enrolment)}")
        if site.settings().get("private") is False:
            yield Finding(
                "warn",
                f"{name} identity",
                "private = false: the server may start open runs, in which it sees single models",
                f"remove it from {site.settings_file}",
            )


def _public(site: SiteFolder, name: str) -> Iterator[Finding]:
    try:
        public_bytes(site.public_key)
    except FedbbError as error:
        yield Finding("bad", f"{name} key", str(error), "ask the site for node.pub again")
    else:
        yield Finding("ok", f"{name} key", "is at the site; its public key is here")


def _data(name: str, path: object, *, at_server: bool) -> Finding:
    subject = f"{name} data"
    if path is None:
        return Finding("ok", subject, "none of its own: the recipe's data.path and partition")
    if os.access(str(path), os.R_OK):
        return Finding("ok", subject, f"{path} can be read")
    if at_server:
        return Finding("warn", subject, f"{path} is not on this machine", "check at the site")
    details = f"{path} cannot be read" if Path(str(path)).exists() else f"{path} is missing"
    return Finding("bad", subject, details, "correct data in site.toml, or change the permissions")


def _authority(site: SiteFolder, now: datetime) -> Iterator[Finding]:
    if site.ca.exists():
        yield from _certificate(site.ca, now)
    else:
        yield Finding("bad", "ca.crt", "is missing", "get it from the server's staff")


def _port(folder: FederationFolder) -> Iterator[Finding]:
    """Check the port on this machine: free, used by our server, or by another program."""
    if not folder.ca.exists():
        return
    try:
        address = folder.listening()
    except RunError:
        address = f"127.0.0.1:{folder.dialed()[1]}"
    health = check_health(*split_address(address, folder.path), folder.ca)
    if health.failure == "refused":
        yield Finding("ok", "port", f"{address} is free; no server is running")
    elif health.failure is None:
        yield Finding("ok", "port", f"the server responds at {address}")
        yield from check_clock(health)
    else:
        details = f"another program listens at {address}: {health.details}"
        yield Finding(
            "bad", "port", details, f"choose another in {folder.settings_file}, or --port"
        )


REACH_ADVICE: Mapping[str, str] = {
    "refused": "ask the server's staff whether it is running, and whether its firewall is open",
    "unknown": "correct server in site.toml, or ask for its address",
    "silent": "a firewall blocks the connection: allow this machine to connect to that port",
    "untrusted": "ca.crt belongs to another federation, the server's certificate is for another "
    "name or has expired, or the connection is intercepted",
    "other": "a program other than the federation's server responds there",
}


def _reach(site: SiteFolder) -> Iterator[Finding]:
    """Connect to the server as the site's node will."""
    try:
        host, port = split_address(site.settings()["server"], site.settings_file)
    except FedbbError:
        return  # reported by another check
    if not site.ca.exists():
        return
    health = check_health(host, port, site.ca)
    if health.failure is None:
        yield Finding("ok", "server", f"responds at {host}:{port}")
        yield from check_clock(health)
    else:
        details = f"{host}:{port}: {health.details}"
        yield Finding("bad", "server", details, REACH_ADVICE[health.failure])


def check_clock(health: Health) -> Iterator[Finding]:
    """Compare our clock with the server's: nodes sign the time, and a wrong one is rejected."""
    if health.ahead is None:
        return
    ahead = health.ahead
    details = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    if ahead >= AHEAD or ahead <= -BEHIND:
        yield Finding("bad", "clock", f"{details}: nodes are rejected", "set the clock (NTP)")
    elif abs(ahead) > AHEAD / 2:
        yield Finding("warn", "clock", details, "set the clock (NTP) before nodes are rejected")
    else:
        yield Finding("ok", "clock", "agrees with the server's")


def _telemetry(variables: Mapping[str, str]) -> Iterator[Finding]:
    loud = [name for name, quiet in OFFLINE.items() if variables.get(name) not in (None, quiet)]
    if loud:
        details = f"{', '.join(loud)} would let Flower send data home"
        yield Finding("warn", "telemetry", details, f"unset {' '.join(loud)}")
    else:
        yield Finding("ok", "telemetry", "off in all programs that fedbb starts")


def _disk(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path).free
    details = f"{free / 1e9:.1f} GB free"
    if free < LITTLE:
        level: Level = "bad" if free < SCARCE else "warn"
        yield Finding(level, "disk", details, "free some space: models and states are stored here")
    else:
        yield Finding("ok", "disk", details)
