"""`fedbb personalize`: how a finished run's model serves each client, as it is and trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console

from fedbb._util.table import Cell, Entry, Table, make_table, to_rich
from fedbb._util.text import counted
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

    Accuracies are on the client's own test data if it keeps some (data.own_test), else on test
    data mixed as the client's own training data is. Clients train by the plain loss at the run's
    rate, whatever its method was. Nothing is written to the run's folder.
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
        Console().print(to_rich(_table(served, epochs)))


def _table(served: Sequence[ClientAccuracies], epochs: int) -> Table:
    titles = {
        "shared": "shared model",
        "personal": "own head",
        "adapted": f"+ {counted(epochs, 'epoch')}",
        "alone": "alone",
        "ceiling": "other run",
    }
    asked = [name for name in titles if getattr(served[0], name) is not None]
    scores = [[row.as_json()[name] for row in served] for name in asked]
    known = [[score for score in column if score is not None] for column in scores]
    means = [percent(fmean(column) if column else None) for column in known]
    worst = [percent(min(column, default=None)) for column in known]
    rows: list[Sequence[Entry]] = [
        (row.client, row.samples, row.classes, *map(percent, accuracies))
        for row, accuracies in zip(served, zip(*scores, strict=True), strict=True)
    ]
    for name, figures in (("mean", means), ("worst", worst)):
        rows.append([Cell(text, strong=True) for text in (name, "", "", *figures)])
    head = ("client", "images", "classes", *(titles[name] for name in asked))
    own = served[0].tested is not None
    where = "each client's own test data" if own else "data mixed as a client's own"
    return make_table(head, rows, f"Accuracy on {where}, %", words=0)
