"""The folder of a federation, made from templates in the package."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from fedbb.errors import RunError
from fedbb.flower.admin.paths import SERVER, FederationFolder, SiteFolder, split_address, toml_line

FEDERATION = """\
# The name and port under which sites connect to the server; its certificate is for this name.
{server}"""
SITE = """\
# The number of this site in the recipe (from 0), and the server it connects to.
{client}{server}
# The path of this site's data, in place of the recipe's data.path (relative to this file).
# data = "data.npz"

# All training data there belongs to this site; the recipe's partition is not applied.
# whole = true

# Take part in private runs only, in which the server sees sums and no single model or count. This
# is the default once roster.json is here; with false the site takes part in open runs as well.
# private = true

# Consent to this number of private runs under one roster; the difference of two runs may reveal
# what this site added (docs/privacy.md). Without it the site takes part in one.
# allowed-private-runs = 2

# Networks and losses in code that a recipe may name and this site imports.
# allowed-code = ["my_nets:build"]
"""


def make_federation(folder: FederationFolder, sites: int, server: str | None = None) -> list[Path]:
    """Make the app and the folders of sites 0, 1, …, as far as they are missing.

    Args:
        folder: the federation's folder, which must be new, empty or a federation.
        sites: the number of sites that have a folder.
        server: the address to which sites connect, as host:port.

    Returns:
        The paths that were made.
    """
    if folder.path.exists() and not folder.path.is_dir():
        raise RunError(f"{folder.path} is a file; a federation needs a folder")
    if folder.path.is_dir() and not folder.is_made() and any(folder.path.iterdir()):
        raise RunError(f"{folder.path} holds other files than a federation; choose another folder")
    if server is not None:
        split_address(server, "--server")
    folder.path.mkdir(parents=True, exist_ok=True)
    dialed = _dialed(folder, server)
    made = [_copy_app(folder), *(_make_site(folder.site(k), k, dialed) for k in range(sites))]
    folder.runs.mkdir(exist_ok=True)
    _close_server(folder)
    # The settings are written last: a folder without them is incomplete.
    made.append(_write(folder.settings_file, FEDERATION.format(server=toml_line("server", dialed))))
    return [path for path in made if path is not None]


def _close_server(folder: FederationFolder) -> None:
    """Keep other users of the machine from the server's files, also those of older versions."""
    folder.server.mkdir(mode=0o700, exist_ok=True)
    folder.server.chmod(0o700)
    # SQLite gives the files beside its database the database's own permissions; an empty file is
    # an empty database.
    folder.database.touch(mode=0o600)
    folder.database.chmod(0o600)


def _dialed(folder: FederationFolder, server: str | None) -> str:
    """Return the address to which sites connect; a federation has only one."""
    if not folder.is_made():
        return server or SERVER
    host, port = folder.dialed()
    if server is not None and split_address(server, "--server") != (host, port):
        raise RunError(
            f"{folder.settings_file} names another server, {host}:{port}; change it there, and in "
            "the site.toml of every site"
        )
    return f"{host}:{port}"


def _copy_app(folder: FederationFolder) -> Path | None:
    if folder.app.exists():
        return None
    with as_file(_template() / "app") as app:
        shutil.copytree(app, folder.app, ignore=shutil.ignore_patterns("__pycache__"))
    return folder.app


def _make_site(site: SiteFolder, client: int, server: str) -> Path | None:
    if site.settings_file.exists():
        return None
    site.path.mkdir(exist_ok=True, mode=0o700)
    site.state.mkdir(exist_ok=True)
    text = (_template() / "site-README.md").read_text("utf-8")
    _write(site.path / "README.md", text.format(name=site.path.name, server=server))
    settings = SITE.format(client=toml_line("client", client), server=toml_line("server", server))
    _write(site.settings_file, settings)
    return site.path


def _write(path: Path, text: str) -> Path | None:
    if path.exists():
        return None
    path.write_text(text, "utf-8")
    return path


def _template() -> Path:
    with as_file(files("fedbb.flower")) as package:
        return package / "template"
