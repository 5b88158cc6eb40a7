"""`fedbb personalize`: how a finished run's model serves each client, as it is and trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedbb.cli.common import AllowCode, Json, Quiet, print_json, progress_bar
from fedbb.cli.screens import percent
from fedbb.runs.personal import ClientAccuracies
from fedbb.runs.personal import personalize as serve


def personalize(
    path: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    epochs: Annotated[
        int, typer.Option(min=1, help="Epochs each client trains the final model on.")
    ] = 1,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone", help="Also train each client by itself, as long as the run did in all."
        ),
    ] = False,
    ceiling: Annotated[
        Path | None,
        typer.Option(help="Another finished run to set beside it, such as a central one."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; one per core if not given.")
    ] = None,
    allow_code: AllowCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell how a run's final model serves each client, and how a client's own training changes it.

    Accuracies are on test data mixed as the client's own training data is. Clients train by the
    plain loss at the run's rate, whatever its method was. Nothing is written to the run's folder.
    """
    with progress_bar("clients trained", hidden=quiet or as_json) as progress:
        served = serve(
            path,
            epochs=epochs,
            alone=alone,
            ceiling=ceiling,
            workers=workers,
            progress=progress,
            allow_code=allow_code,
        )
    if as_json:
        print_json({"epochs": epochs, "clients": [row.as_json() for row in served]})
    elif not quiet:
        Console().print(_table(served, epochs))


def _table(served: Sequence[ClientAccuracies], epochs: int) -> Table:
    titles = {
        "shared": "shared model",
        "adapted": f"+ {epochs} epoch{'s' if epochs > 1 else ''}",
        "alone": "alone",
        "ceiling": "other run",
    }
    asked = [name for name in titles if getattr(served[0], name) is not None]
    table = Table(title="Accuracy on data mixed as a client's own, %", title_justify="left")
    for title in ("client", "images", "classes", *(titles[name] for name in asked)):
        table.add_column(title, justify="right")
    for row in served:
        plain = row.as_json()
        held = (row.client, row.samples, row.classes)
        table.add_row(*map(str, held), *(percent(plain[name]) for name in asked))
    table.add_section()
    known = [[s for row in served if (s := row.as_json()[name]) is not None] for name in asked]
    table.add_row("mean", "", "", *(percent(fmean(scores) if scores else None) for scores in known))
    table.add_row("worst", "", "", *(percent(min(scores, default=None)) for scores in known))
    return table
