"""`fedbb personalize`: which model serves each client best, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedbb._util.table import Cell, Entry, Table, make_table, to_rich
from fedbb._util.text import counted
from fedbb.cli.common import AllowCode, Json, Processes, Quiet, print_json, progress_bar
from fedbb.cli.screens import percent
from fedbb.evaluation.own_models import (
    Columns,
    ColumnSummary,
    PairedDifference,
    compare_columns,
    is_clear,
    summarize_columns,
)
from fedbb.personal import Part
from fedbb.report.text import metric_title
from fedbb.runs.personal import ClientAccuracies
from fedbb.runs.personal import personalize as serve

COLUMNS = {
    "shared": "shared model",
    "personal": "own model",
    "fused": "own + shared",
    "adapted": "adapted",
    "alone": "alone",
    "ceiling": "other run",
}
"""The columns in their order, and their titles."""


def personalize(
    path: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    epochs: Annotated[
        int, typer.Option(min=1, help="Epochs for which each client trains the final model.")
    ] = 1,
    train: Annotated[Part, typer.Option(help="Part of the final model that is trained.")] = "all",
    lam: Annotated[
        float, typer.Option(min=0.0, help="Strength of the pull towards the final model.")
    ] = 0.0,
    metric: Annotated[
        str, typer.Option(help="Score on clients' own test data, such as auroc.")
    ] = "accuracy",
    alone: Annotated[
        bool,
        typer.Option(
            "--alone", help="Also train each client alone, for as many epochs as the run in total."
        ),
    ] = False,
    ceiling: Annotated[
        Path | None,
        typer.Option(help="Another finished run to compare with, such as a central one."),
    ] = None,
    workers: Processes = None,
    allow_code: AllowCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare how well the models of a run suit each client, and name the best.

    Scores are on the client's own test data if it keeps some (data.own_test), else on test data
    mixed as the client's own training data is. Clients train by the plain loss at the run's rate,
    whatever its method was. Nothing is written to the run's folder.
    """
    with progress_bar("clients trained", hidden=quiet or as_json) as progress:
        served = serve(
            path,
            epochs=epochs,
            train=train,
            lam=lam,
            metric=metric,
            alone=alone,
            ceiling=ceiling,
            workers=workers,
            progress=progress,
            allow_code=allow_code,
        )
    columns = _columns(served)
    sizes = [row.samples if row.tested is None else row.tested for row in served]
    summaries = summarize_columns(columns, sizes)
    base = "shared" if "shared" in columns else "personal"
    differences = compare_columns(columns, base)
    if as_json:
        print_json(
            {
                "epochs": epochs,
                "train": train,
                "lam": lam,
                "metric": metric,
                "clients": [row.as_json() for row in served],
                "summary": [summary.to_json() for summary in summaries],
                "differences": [difference.to_json() for difference in differences],
            }
        )
    elif not quiet:
        console = Console()
        console.print(to_rich(_table(served, columns, summaries, epochs, metric)))
        if differences:
            console.print(to_rich(_comparison(differences, _titles(epochs))))


def _columns(served: Sequence[ClientAccuracies]) -> Columns:
    """Return the columns that the run has."""
    return {
        name: [getattr(row, name) for row in served]
        for name in COLUMNS
        if getattr(served[0], name) is not None
    }


def _titles(epochs: int) -> dict[str, str]:
    return {**COLUMNS, "adapted": f"+ {counted(epochs, 'epoch')}"}


def _table(
    served: Sequence[ClientAccuracies],
    columns: Columns,
    summaries: Sequence[ColumnSummary],
    epochs: int,
    metric: str,
) -> Table:
    clear = metric == "accuracy" and "shared" in columns and served[0].tested is not None
    rows: list[Sequence[Entry]] = []
    for place, row in enumerate(served):
        plain = row.as_json()
        found = [plain[name] for name in columns]
        best = max((value for value in found if value is not None), default=None)
        cells = [
            Cell(percent(value), strong=value is not None and value == best) for value in found
        ]
        size = row.samples if row.tested is None else row.tested
        if clear:
            cells.append(Cell(_clear(row, columns), strong=False))
        rows.append((served[place].client, size, row.classes, *cells))
    figures = {
        "mean by samples": [percent(one.to_json()["by_samples"]) for one in summaries],
        "mean": [percent(one.to_json()["mean"]) for one in summaries],
        "SD": [percent(one.to_json()["std"]) for one in summaries],
        "worst": [percent(one.to_json()["worst"]) for one in summaries],
        "worst tenth": [percent(one.to_json()["worst_tenth"]) for one in summaries],
        "best for": [str(one.best_for) for one in summaries],
    }
    for name, texts in figures.items():
        blank = [""] if clear else []
        rows.append([Cell(text, strong=True) for text in (name, "", "", *texts, *blank)])
    own = served[0].tested is not None
    titles = _titles(epochs)
    head = ["client", "tested" if own else "images", "classes", *(titles[c] for c in columns)]
    head += ["clear gain"] if clear else []
    where = "each client's own test data" if own else "data mixed as a client's own"
    note = "best for: clients that no other column serves better; equal ones count in each."
    if clear:
        note += " clear gain: models that surely beat the shared one on the client's test data."
    caption = f"{metric_title(metric)} on {where}, %"
    return make_table(head, rows, caption[0].upper() + caption[1:], words=0, note=note)


def _clear(row: ClientAccuracies, columns: Columns) -> str:
    """Name the models that surely serve a client better than the shared one."""
    found = []
    for name in columns:
        value = getattr(row, name)
        if name == "shared" or row.shared is None or not row.tested:
            continue
        if value > row.shared and is_clear(value, row.shared, row.tested):
            found.append(COLUMNS[name])
    return ", ".join(found) or "–"


def _comparison(differences: Sequence[PairedDifference], titles: dict[str, str]) -> Table:
    rows = []
    for one in differences:
        plain = one.to_json()
        ends = [percent(plain[end]) for end in ("low", "high")]
        sure = "unclear"
        if one.is_sure:
            sure = "better" if one.mean > 0 else "worse"
        rows.append(
            (
                titles[one.column],
                percent(plain["mean"]),
                f"{ends[0]} to {ends[1]}",
                f"{one.ahead} of {one.clients}",
                sure,
            )
        )
    against = titles[differences[0].against]
    head = ("model", "difference", "95 % interval", "clients ahead", "on average")
    note = "Interval of the mean over clients, by resampling clients; it is not of one client."
    return make_table(head, rows, f"Difference to: {against}, %-points", words=1, note=note)
