"""`fedbb flower up` and `join`: a server with sites on one machine, or a single site."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedbb.cli.common import Json, Quiet, print_json, stoppable
from fedbb.cli.flower_run import Out, Score, Settings, carry_out, need_flower
from fedbb.cli.run import resolve
from fedbb.errors import RunError
from fedbb.flower.admin.paths import FederationFolder, SiteFolder

if TYPE_CHECKING:
    from fedbb.flower.admin.local import LocalFederation

POLL_SECONDS = 0.5


def up(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the federation; created if missing.")
    ],
    sites: Annotated[
        int | None,
        typer.Option(
            min=0, help="Number of sites to run on this machine; all with a folder, or 3."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; by default that of federation.toml.")
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option("--run", metavar="RECIPE", help="Run this recipe, then stop everything."),
    ] = None,
    out: Out = None,
    settings: Settings = None,
    score: Score = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start the server, with TLS and site keys, and sites on this machine, until Ctrl-C.

    `--sites 0` starts the server alone, for sites that join from other machines. All processes
    end with this command, however it ends.
    """
    need_flower()
    from fedbb.flower.admin.local import LocalFederation

    folder = FederationFolder(path)
    chosen = resolve(recipe, settings or [], out, False, folder.runs) if recipe else None
    number = sites if sites is not None else len(folder.sites()) or 3
    with stoppable(), ExitStack() as stack:
        try:
            wanted = port or _port(folder)
            _print(f"starting the server at {host}:{wanted} …", as_json or quiet)
            federation = stack.enter_context(LocalFederation(path, number, host=host, port=wanted))
            _print_ready(federation, as_json, quiet)
            if chosen is None:
                _stay(federation, as_json or quiet)
            else:
                carry_out(folder, *chosen, resume=False, score=score, as_json=as_json, quiet=quiet)
        except KeyboardInterrupt:
            _print("ending …", as_json or quiet)


def join(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of this site.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Connect a site to the server and do its work until Ctrl-C."""
    need_flower()
    from fedbb.flower.admin.node import join as keep_running

    site = SiteFolder(path)
    if not site.settings_file.exists():
        raise RunError(f"{path} is not the folder of a site; it has no site.toml")
    with stoppable():
        try:
            for message in keep_running(site):
                if as_json:
                    print_json({"time": time.time(), "told": message}, indent=None)
                else:
                    _print(f"{time.strftime('%H:%M:%S')}  {message}", quiet)
        except KeyboardInterrupt:
            _print("ended", as_json or quiet)


def _port(folder: FederationFolder) -> int:
    from fedbb.flower.admin.paths import SERVER, split_address

    if folder.is_made():
        return folder.dialed()[1]
    return split_address(SERVER, folder.path)[1]


def _print_ready(federation: LocalFederation, as_json: bool, quiet: bool) -> None:
    names = [node.name for node in federation.nodes]
    if as_json:
        print_json({"server": federation.address, "online": names}, indent=None)
        return
    admitted = len(federation.control.nodes())
    sites = f"{len(names) or admitted} site{'s' if (len(names) or admitted) != 1 else ''}"
    what = f"{sites} online" if names else f"{sites} may join"
    _print(f"ready at {federation.address}: {what}; Ctrl-C ends it", quiet)


def _stay(federation: LocalFederation, quiet: bool) -> None:
    """Report nodes that end, and raise RunError when the server ends."""
    gone: set[str] = set()
    while federation.superlink.is_running():
        for node in federation.nodes:
            if not node.program.is_running() and node.name not in gone:
                gone.add(node.name)
                _print(f"the node of {node.name} has ended; see {node.program.log}", quiet)
        time.sleep(POLL_SECONDS)
    raise RunError(f"the server has ended; see {federation.superlink.log}")


def _print(message: str, quiet: bool) -> None:
    if not quiet:
        Console().print(message, markup=False, highlight=False, soft_wrap=True)
