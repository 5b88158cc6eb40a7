"""`fedbb compare`: two runs, or two groups of runs, side by side on one screen."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from fedbb.cli.common import Json, Quiet, print_json
from fedbb.cli.compare_screen import screenful
from fedbb.report.compare import as_json as plain
from fedbb.report.compare import compare_groups
from fedbb.report.groups import read_group


def compare(
    a: Annotated[
        str, typer.Argument(help="A run folder, a folder of runs, or a pattern in quotes.")
    ],
    b: Annotated[str, typer.Argument(help="Likewise; differences are B − A.")],
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", help="Macro metric; the first one also judges the classes."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare two runs or groups: settings, scores, classes that gain and lose, client weights.

    The runs of a group differ by their seed only. Scores are compared on the seeds of both.
    """
    found = compare_groups(read_group(a), read_group(b), metrics or [])
    if as_json:
        print_json(plain(found))
    elif not quiet:
        console = Console(highlight=False)
        for part in screenful(found):
            console.print(part, soft_wrap=False)
