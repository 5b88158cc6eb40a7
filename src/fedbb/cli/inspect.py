"""`fedbb inspect`: how uneven a federation is, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import TaskProgressColumn

from fedbb.analysis.inspect import examine
from fedbb.analysis.label_columns import Layout
from fedbb.cli.common import Json, Quiet, print_json, progress_bar
from fedbb.cli.inspect_source import Request, find
from fedbb.data.label_policy import Policy
from fedbb.partition.registry import Rule
from fedbb.records import Task
from fedbb.report.inspection.files import write_folder, write_fragment
from fedbb.report.inspection.summary import print_summary


def inspect(
    source: Annotated[
        str,
        typer.Argument(
            help="A CSV of labels (.csv, .csv.gz), an .npz, a data set by name, a recipe, a "
            "partition beside its recipe, or a run folder."
        ),
    ],
    label: Annotated[
        list[str] | None,
        typer.Option(help="A column of labels, again and again for 0/1 columns; else guessed."),
    ] = None,
    clients: Annotated[
        str | None, typer.Option(help="The column that names the client: site, hospital, patient.")
    ] = None,
    divide: Annotated[int | None, typer.Option(min=1, help="Divide among so many clients.")] = None,
    kind: Annotated[
        str, typer.Option(help="How to divide: label-skew, quantity-skew or even.")
    ] = "label-skew",
    concentration: Annotated[
        float, typer.Option(help="δ of a skewed division; the smaller, the more uneven.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the division.")] = 0,
    partition: Annotated[
        Path | None, typer.Option(help="Divide as this partition file says.")
    ] = None,
    patient: Annotated[
        str | None, typer.Option(help="The column that names the patient; else guessed.")
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--id", help="The column no two rows may agree in; else guessed.")
    ] = None,
    task: Annotated[
        Task | None, typer.Option(help="Whether one column of labels holds one class or several.")
    ] = None,
    uncertain: Annotated[
        Policy | None, typer.Option(help="What a label of −1 means in 0/1 columns.")
    ] = None,
    blank: Annotated[
        Policy | None, typer.Option(help="What a blank label means in 0/1 columns.")
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="beta, tau, mu, class_factor, alpha_min, margin, label_margin, gamma, reading, "
            "batch_size, saturation; or a recipe's key.",
        ),
    ] = None,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Print advice as a recipe's fragment instead.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for a page, CSV, JSON and advice.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show how uneven labels are: cases of a class, classes, clients; and what PNB and CBR do."""
    layout = Layout(
        tuple(label or ()), clients, patient, identity, task, uncertain=uncertain, blank=blank
    )
    rule = None if divide is None else _rule(kind, divide, concentration, seed)
    with progress_bar(
        "reading", hidden=quiet or as_json or suggest, column=TaskProgressColumn()
    ) as advance:
        found = find(Request(source, layout, rule, partition, values or (), advance))
        result = examine(
            found.labels, found.assignment, found.settings, title=found.title, notes=found.notes
        )
    fragment = write_fragment(result.advice, found.data)
    if out is not None:
        write_folder(result, fragment, out)
    if as_json:
        print_json(result.as_json(), indent=None)
    elif suggest:
        typer.echo(fragment, nl=False)
    elif not quiet:
        console = Console()
        print_summary(result, console)
        if out is not None:
            console.print(f"page: {out / 'index.html'}", markup=False, highlight=False)


def _rule(kind: str, clients: int, concentration: float, seed: int) -> Rule:
    if kind == "even":
        return Rule(kind, clients=clients, seed=seed)
    return Rule(kind, clients=clients, concentration=concentration, seed=seed)
