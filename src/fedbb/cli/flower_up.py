"""`fedbb flower up` and `join`: a server with its sites on one machine, or a site on its own."""

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

GLANCE = 0.5


def up(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the federation; made if need be.")
    ],
    sites: Annotated[
        int | None,
        typer.Option(min=0, help="Sites to run on this machine too; all with a folder, or 3."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; that of federation.toml.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option("--run", metavar="RECIPE", help="Run this, then end everything.")
    ] = None,
    out: Out = None,
    settings: Settings = None,
    score: Score = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start the server, with TLS and site keys, and sites on this machine, until Ctrl-C.

    `--sites 0` is the server alone, for sites that join from elsewhere. Whatever was started ends
    with this command, however it ends.
    """
    need_flower()
    from fedbb.flower.admin.local import LocalFederation

    folder = FederationFolder(path)
    chosen = resolve(recipe, settings or [], out, False, folder.runs) if recipe else None
    number = sites if sites is not None else len(folder.sites()) or 3
    with stoppable(), ExitStack() as stack:
        try:
            wanted = port or _port(folder)
            _tell(f"starting the server at {host}:{wanted} …", as_json or quiet)
            federation = stack.enter_context(LocalFederation(path, number, host=host, port=wanted))
            _tell_ready(federation, as_json, quiet)
            if chosen is None:
                _stay(federation, as_json or quiet)
            else:
                carry_out(folder, *chosen, resume=False, score=score, as_json=as_json, quiet=quiet)
        except KeyboardInterrupt:
            _tell("ending …", as_json or quiet)


def join(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of this site.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Call the server and work for it, at a site, until Ctrl-C."""
    need_flower()
    from fedbb.flower.admin.node import join as keep

    site = SiteFolder(path)
    if not site.settings_file.exists():
        raise RunError(f"{path} is the folder of no site; it has no site.toml")
    with stoppable():
        try:
            for words in keep(site):
                if as_json:
                    print_json({"time": time.time(), "told": words}, indent=None)
                else:
                    _tell(f"{time.strftime('%H:%M:%S')}  {words}", quiet)
        except KeyboardInterrupt:
            _tell("ended", as_json or quiet)


def _port(folder: FederationFolder) -> int:
    from fedbb.flower.admin.paths import SERVER, split_address

    if folder.is_made():
        return folder.dialed()[1]
    return split_address(SERVER, folder.path)[1]


def _tell_ready(federation: LocalFederation, as_json: bool, quiet: bool) -> None:
    names = [node.name for node in federation.nodes]
    if as_json:
        print_json({"server": federation.address, "online": names}, indent=None)
        return
    admitted = len(federation.control.nodes())
    sites = f"{len(names) or admitted} site{'s' if (len(names) or admitted) != 1 else ''}"
    what = f"{sites} online" if names else f"{sites} may join"
    _tell(f"ready at {federation.address}: {what}; Ctrl-C ends it", quiet)


def _stay(federation: LocalFederation, quiet: bool) -> None:
    """Watch over what was started; a node that ends is told of, the server's end is the end."""
    gone: set[str] = set()
    while federation.superlink.is_running():
        for node in federation.nodes:
            if not node.program.is_running() and node.name not in gone:
                gone.add(node.name)
                _tell(f"the node of {node.name} has ended; see {node.program.log}", quiet)
        time.sleep(GLANCE)
    raise RunError(f"the server has ended; see {federation.superlink.log}")


def _tell(words: str, quiet: bool) -> None:
    if not quiet:
        Console().print(words, markup=False, highlight=False, soft_wrap=True)
