"""The files in the folder of a federation and in the folder of a site."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbb._util.files import explain_error, parse_json, parse_toml, replacing
from fedbb._util.plugins import is_code
from fedbb.errors import RunError

SERVER = "localhost:8443"
SITE = re.compile(r"site-(\d+)")
Scalar = bool | int | float | str

ALLOWED_CODE = "allowed-code"
"""The setting of a site that lists the code which recipes may name."""

ALLOWED_RUNS = "allowed-private-runs"
"""The setting by which a site consents to more than one private run under a roster."""


@dataclass(frozen=True)
class SiteFolder:
    """The folder of a site: its settings, its key, the authority's certificate, its state."""

    path: Path

    @property
    def settings_file(self) -> Path:
        """The site's client number, the server's address, the path of its data."""
        return self.path / "site.toml"

    @property
    def key(self) -> Path:
        """The private key, which never leaves the site."""
        return self.path / "node.key"

    @property
    def public_key(self) -> Path:
        """The public key, which is sent to the server."""
        return self.path / "node.pub"

    @property
    def ca(self) -> Path:
        """The certificate of the federation's authority."""
        return self.path / "ca.crt"

    @property
    def roster(self) -> Path:
        """The roster that the site has pinned, once it is enrolled for private runs."""
        return self.path / "roster.json"

    @property
    def state(self) -> Path:
        """Prepared data, client states of runs, and Flower's own files."""
        return self.path / "state"

    @property
    def log(self) -> Path:
        """The log of the site's node."""
        return self.state / "node.log"

    def settings(self) -> dict[str, Any]:
        """Return the settings of site.toml.

        Raises:
            RunError: a setting is unknown, missing or of another type.
        """
        values = read_toml(self.settings_file)
        known: dict[str, type] = {
            "name": str,
            "client": int,
            "server": str,
            "data": str,
            "public-data": str,
            "whole": bool,
            "private": bool,
            ALLOWED_RUNS: int,
            ALLOWED_CODE: list,
        }
        for key, value in values.items():
            if key not in known:
                raise RunError(f"{self.settings_file}: {key} is unknown; known: {', '.join(known)}")
            if type(value) is not known[key]:
                raise RunError(f"{self.settings_file}: {key} must be {known[key].__name__}")
        for key in ("client", "server"):
            if key not in values:
                raise RunError(f"{self.settings_file}: {key} is missing")
        for code in values.get(ALLOWED_CODE, []):
            # A comma separates names in the node config.
            if not isinstance(code, str) or not is_code(code) or "," in code:
                raise RunError(
                    f"{self.settings_file}: {ALLOWED_CODE} holds {code!r}; allowed: names of "
                    "the form package.module:function"
                )
        return {"name": self.path.resolve().name, **values}

    def node_config(self) -> dict[str, Scalar]:
        """Return the node config for this site's client: its number, data, state and keys."""
        settings = self.settings()
        config: dict[str, Scalar] = {
            "client": settings["client"],
            "state": str(self.state.resolve()),
            "keys": str(self.path.resolve()),
        }
        for name in ("data", "public-data"):
            if name in settings:
                # A path in the settings is relative to their file.
                config[name] = str((self.path / settings[name]).resolve())
        if settings.get("whole"):
            config["whole"] = True
        for name in ("private", ALLOWED_RUNS):
            if name in settings:
                config[name] = settings[name]
        if settings.get(ALLOWED_CODE):
            config[ALLOWED_CODE] = ",".join(settings[ALLOWED_CODE])
        return config


@dataclass(frozen=True)
class FederationFolder:
    """The server's folder: the app, certificates, Flower's state, logs, and a folder per site."""

    path: Path

    @property
    def settings_file(self) -> Path:
        """The name and port under which sites connect to the server."""
        return self.path / "federation.toml"

    @property
    def app(self) -> Path:
        """The Flower app that runs recipes."""
        return self.path / "app"

    @property
    def certificates(self) -> Path:
        """The authority and the server's certificate, with their keys."""
        return self.path / "certificates"

    @property
    def ca(self) -> Path:
        """The certificate of the authority, which every site gets."""
        return self.certificates / "ca.crt"

    @property
    def ca_key(self) -> Path:
        """The key of the authority, needed only to make certificates."""
        return self.certificates / "ca.key"

    @property
    def server_certificate(self) -> Path:
        """The certificate of the server."""
        return self.certificates / "server.crt"

    @property
    def server_key(self) -> Path:
        """The key of the server's certificate."""
        return self.certificates / "server.key"

    @property
    def server(self) -> Path:
        """Files of the running server: its database, its address, its log."""
        return self.path / "server"

    @property
    def database(self) -> Path:
        """Flower's own state: registered nodes and runs."""
        return self.server / "state.db"

    @property
    def log(self) -> Path:
        """The log of the SuperLink and of the server apps."""
        return self.server / "superlink.log"

    @property
    def address_file(self) -> Path:
        """The address at which the server last listened."""
        return self.server / "address.json"

    @property
    def runs(self) -> Path:
        """The default place of run folders."""
        return self.path / "runs"

    def is_made(self) -> bool:
        """Tell whether `fedbb flower init` made this folder."""
        return self.settings_file.exists()

    def check(self) -> None:
        """Raise RunError if `fedbb flower init` did not make this folder."""
        if not self.is_made():
            raise RunError(f"{self.path} is not a federation; make one with: fedbb flower init DIR")

    def dialed(self) -> tuple[str, int]:
        """Return the name and port to which sites connect."""
        return split_address(read_toml(self.settings_file).get("server", SERVER), self.path)

    def site(self, number: int) -> SiteFolder:
        """Return the folder of a site."""
        return SiteFolder(self.path / f"site-{number}")

    def sites(self) -> list[SiteFolder]:
        """Return the folders of all sites, by number."""
        if not self.path.is_dir():
            return []
        found = {path: SITE.fullmatch(path.name) for path in self.path.iterdir()}
        numbers = sorted(int(match[1]) for match in found.values() if match)
        return [self.site(number) for number in numbers]

    def listening(self) -> str:
        """Return the address at which programs on this machine reach the server."""
        try:
            return str(parse_json(self.address_file.read_text("utf-8"))["address"])
        except (OSError, ValueError, KeyError):
            raise RunError(
                f"no server was started in {self.path}; start it with: fedbb flower up {self.path}"
            ) from None

    def note_address(self, address: str) -> None:
        """Write down where the server listens, for other commands."""
        with replacing(self.address_file) as file:
            file.write(json.dumps({"address": address}).encode())


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a settings file."""
    try:
        return parse_toml(path.read_text("utf-8"))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {explain_error(error)}") from error
    except ValueError as error:
        raise RunError(f"{path} is not valid TOML: {error}") from error


def toml_line(key: str, value: Scalar) -> str:
    """Return a setting as a line of TOML, whose scalars look as in JSON."""
    return f"{key} = {json.dumps(value, ensure_ascii=False)}\n"


def split_address(address: str, where: object) -> tuple[str, int]:
    """Return host and port of "host:port", with or without brackets around the host."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise RunError(f"{where}: server {address!r} must have the form host:port")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
