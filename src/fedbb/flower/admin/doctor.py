"""What would keep a federation or a site from working: looked at one by one, with what to do."""

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
from fedbb.flower.admin.health import Call, call
from fedbb.flower.admin.paths import FederationFolder, SiteFolder, split_address
from fedbb.flower.admin.processes import OFFLINE
from fedbb.recipes.privacy import need_libraries

FLOWER = ((1, 41), (1, 43))
SOON = timedelta(days=30)
LITTLE, SCARCE = 2_000_000_000, 200_000_000
AHEAD, BEHIND = 5.0, 300.0
"""Seconds by which Flower lets the clock of a site go before or after the server's."""

Level = Literal["ok", "warn", "bad"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `advice` says what to do unless all is well."""

    level: Level
    subject: str
    told: str
    advice: str = ""


def examine(path: Path, now: datetime | None = None) -> list[Finding]:
    """Look at the folder of a federation or of a site."""
    at = now or datetime.now(UTC)
    federation, site = FederationFolder(path), SiteFolder(path)
    if federation.is_made():
        checks = [_versions(), _server(federation, at), _port(federation)]
        checks += [_site(inner, federation) for inner in federation.sites()]
    elif site.settings_file.exists():
        checks = [_versions(), _site(site, None), _authority(site, at), _reach(site)]
    else:
        raise RunError(f"{path} is the folder of no federation and of no site")
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
            yield Finding("bad", name, f"{found} is not tried", 'pip install "flwr>=1.41,<1.43"')
        else:
            yield Finding("ok", name, found)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _server(folder: FederationFolder, now: datetime) -> Iterator[Finding]:
    for path in (folder.ca, folder.server_certificate):
        yield from _certificate(path, now)
    for path in (folder.ca_key, folder.server_key):
        yield from _private(path)
    if folder.ca.exists() and folder.server_certificate.exists():
        yield from _matching(folder)


def _matching(folder: FederationFolder) -> Iterator[Finding]:
    """Look whether the server's certificate holds for the name that sites call."""
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
        return  # told already
    if dialed in hosts:
        yield Finding("ok", "server.crt", f"holds for {', '.join(hosts)}")
    else:
        told = f"does not hold for {dialed}, which sites call, but for {', '.join(hosts)}"
        yield Finding("bad", "server.crt", told, anew)


def _certificate(path: Path, now: datetime) -> Iterator[Finding]:
    if not path.exists():
        yield Finding("bad", path.name, "is missing", f"fedbb flower certs {path.parent.parent}")
        return
    try:
        yield _dates(path, read_certificate(path), now)
    except RunError as error:
        yield Finding("bad", path.name, str(error), "get it anew")


def _dates(path: Path, certificate: Certificate, now: datetime) -> Finding:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    anew = f"delete {path.name} and run `fedbb flower certs` again"
    if now < begins:
        told = f"holds only from {begins:%Y-%m-%d %H:%M} UTC; it is {now:%Y-%m-%d %H:%M}"
        return Finding("bad", path.name, told, "set this machine's clock")
    if now >= ends:
        return Finding("bad", path.name, f"expired on {ends:%Y-%m-%d %H:%M} UTC", anew)
    if now >= ends - SOON:
        return Finding("warn", path.name, f"expires on {ends:%Y-%m-%d %H:%M} UTC", anew)
    return Finding("ok", path.name, f"holds until {ends:%Y-%m-%d}")


def _private(path: Path, subject: str | None = None) -> Iterator[Finding]:
    name = subject or path.name
    if not path.exists():
        yield Finding("bad", name, "is missing", "run: fedbb flower certs")
    elif path.stat().st_mode & 0o077:
        told = f"can be read by others (mode {path.stat().st_mode & 0o777:o})"
        yield Finding("bad", name, told, f"chmod 600 {path}")
    elif not os.access(path, os.R_OK):
        yield Finding("bad", name, "cannot be read by this user", f"see to the owner of {path}")
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
        told = f"calls {server[0]}:{server[1]}, not the server of federation.toml"
        yield Finding("warn", f"{name} settings", told, f"correct {site.settings_file}")
    if federation is not None and site.public_key.exists() and not site.key.exists():
        yield from _public(site, name)
        return  # what else there is to see is at the site
    yield from _private(site.key, f"{name} key")
    yield from _identity(site, name)
    yield _data(name, config.get("data"), at_server=federation is not None)
    if not os.access(site.state, os.W_OK):
        yield Finding("bad", f"{name} state", "cannot be written", f"mkdir -p {site.state}")


def _identity(site: SiteFolder, name: str) -> Iterator[Finding]:
    """Look at what private runs need, where somebody has begun to enrol the site."""
    if not (site.path / "identity.key").exists():
        return
    try:
        need_libraries("masked")
        from fedbb.secagg.client_secrets import read_site_keys
        from fedbb.secagg.primitives.keys import fingerprint

        pinned = read_site_keys(site.path, int(site.settings()["client"]))
    except FedbbError as error:
        yield Finding("bad", f"{name} identity", str(error), "private runs are refused till then")
    else:
        told = f"in a roster of {len(pinned.roster.members)}, signed by"
        yield Finding("ok", f"{name} identity", f"{told} {fingerprint(pinned.enrolment)}")


def _public(site: SiteFolder, name: str) -> Iterator[Finding]:
    try:
        public_bytes(site.public_key)
    except FedbbError as error:
        yield Finding("bad", f"{name} key", str(error), "have node.pub sent again")
    else:
        yield Finding("ok", f"{name} key", "is at the site; its public half is here")


def _data(name: str, path: object, *, at_server: bool) -> Finding:
    subject = f"{name} data"
    if path is None:
        return Finding("ok", subject, "none of its own: the recipe's data.path and partition")
    if os.access(str(path), os.R_OK):
        return Finding("ok", subject, f"{path} can be read")
    if at_server:
        return Finding("warn", subject, f"{path} is not on this machine", "look at the site")
    told = f"{path} cannot be read" if Path(str(path)).exists() else f"{path} is not there"
    return Finding("bad", subject, told, "correct data in site.toml, or see to the rights")


def _authority(site: SiteFolder, now: datetime) -> Iterator[Finding]:
    if site.ca.exists():
        yield from _certificate(site.ca, now)
    else:
        yield Finding("bad", "ca.crt", "is missing", "get it from the server's staff")


def _port(folder: FederationFolder) -> Iterator[Finding]:
    """Look at the port on this machine: free, ours, or somebody else's."""
    if not folder.ca.exists():
        return
    try:
        address = folder.listening()
    except RunError:
        address = f"127.0.0.1:{folder.dialed()[1]}"
    answer = call(*split_address(address, folder.path), folder.ca)
    if answer.failure == "refused":
        yield Finding("ok", "port", f"{address} is free; no server is running")
    elif answer.failure is None:
        yield Finding("ok", "port", f"the server answers at {address}")
        yield from clock(answer)
    else:
        told = f"something else listens at {address}: {answer.told}"
        yield Finding("bad", "port", told, f"choose another in {folder.settings_file}, or --port")


REACH_ADVICE: Mapping[str, str] = {
    "refused": "ask the server's staff whether it runs, and whether its firewall lets you through",
    "unknown": "correct server in site.toml, or ask for its address",
    "silent": "your firewall or theirs keeps the call back: let this machine out to that port",
    "untrusted": "ca.crt is of another federation, the server's certificate holds for another "
    "name or expired, or somebody stands between",
    "other": "something else than the federation's server answers there",
}


def _reach(site: SiteFolder) -> Iterator[Finding]:
    """Call the server as the site's node will."""
    try:
        host, port = split_address(site.settings()["server"], site.settings_file)
    except FedbbError:
        return  # told already
    if not site.ca.exists():
        return
    answer = call(host, port, site.ca)
    if answer.failure is None:
        yield Finding("ok", "server", f"answers at {host}:{port}")
        yield from clock(answer)
    else:
        told = f"{host}:{port}: {answer.told}"
        yield Finding("bad", "server", told, REACH_ADVICE[answer.failure])


def clock(answer: Call) -> Iterator[Finding]:
    """Hold our clock against the server's; nodes sign the time, and are refused if it is off."""
    if answer.ahead is None:
        return
    ahead = answer.ahead
    told = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    if ahead >= AHEAD or ahead <= -BEHIND:
        yield Finding("bad", "clock", f"{told}: nodes are refused", "set the clock (NTP)")
    elif abs(ahead) > AHEAD / 2:
        yield Finding("warn", "clock", told, "set the clock (NTP), before nodes are refused")
    else:
        yield Finding("ok", "clock", "agrees with the server's")


def _telemetry(variables: Mapping[str, str]) -> Iterator[Finding]:
    loud = [name for name, quiet in OFFLINE.items() if variables.get(name) not in (None, quiet)]
    if loud:
        told = f"{', '.join(loud)} would have Flower call home"
        yield Finding("warn", "telemetry", told, f"unset {' '.join(loud)}")
    else:
        yield Finding("ok", "telemetry", "off in all that fedbb starts")


def _disk(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path).free
    told = f"{free / 1e9:.1f} GB free"
    if free < LITTLE:
        level: Level = "bad" if free < SCARCE else "warn"
        yield Finding(level, "disk", told, "make room: models and states are kept here")
    else:
        yield Finding("ok", "disk", told)
