"""`fedbb track`: hand runs that are on disk to a tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track as show_progress

from fedbb._util.text import counted
from fedbb.cli.common import Json, Quiet, print_json, say
from fedbb.report.results import read_run
from fedbb.trackers.export import export
from fedbb.trackers.registry import TRACKERS, make_tracker


def track(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, finished or not.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="NAME[=FOLDER]", help=f"Tracker: {', '.join(TRACKERS)}; in ./tracking."
        ),
    ],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export runs to TensorBoard, MLflow or Weights & Biases; existing rounds stay unchanged."""
    make_tracker(to)  # what is wrong with the name is reported before any work
    console = Console(stderr=as_json)
    hidden = quiet or as_json or not console.is_terminal
    sent = {}
    for path in show_progress(runs, "runs", console=console, disable=hidden, transient=True):
        read_run(path)  # what is damaged is reported before any of it is sent
        sent[str(path)] = export(make_tracker(to), path)
        if not (quiet or as_json):
            say(console, f"{path}: {counted(sent[str(path)], 'round')} sent")
    if as_json:
        print_json([{"run": path, "rounds": rounds} for path, rounds in sent.items()])
