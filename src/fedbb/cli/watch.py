"""`fedbb watch`: the report page of runs while they train, in a browser on this machine."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from fedbb.cli.common import Json, Quiet, echo, print_json, stoppable
from fedbb.errors import RunError
from fedbb.report.watch import LivePage, serve


def watch(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold them.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; any free one if 0.")
    ] = 0,
    title: Annotated[str, typer.Option(help="The page's title.")] = "Runs under way",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve the report page of runs to this machine while they train; Ctrl-C ends it.

    The page is updated after every round. Its address contains a secret, and nothing else
    is served.
    """
    for path in runs:
        if path.exists() and not path.is_dir():
            raise RunError(f"{path} is not a folder; give run folders, or folders that hold them")
    page = LivePage(runs, title)
    try:
        with serve(page, port) as address, stoppable():
            if as_json:
                print_json({"address": address}, indent=None)
            elif not quiet:
                for path in page.missing():
                    echo(f"{path} is not there yet; its runs are shown as soon as they have rounds")
                echo(f"open {address}\nCtrl-C ends it")
            Event().wait()
    except OSError as error:
        raise RunError(f"port {port} cannot be opened: {error.strerror}") from error
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
