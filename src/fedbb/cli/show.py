"""`fedbb show`: what a run folder holds, in a screenful."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedbb.cli.common import Json, Quiet, print_json
from fedbb.cli.screens import COLUMNS, ending, percent
from fedbb.errors import RunError
from fedbb.recipes.reader import make_recipe
from fedbb.runs.folder import RunFolder


def show(
    path: Annotated[Path, typer.Argument(help="A run folder.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show a run: its recipe in short, scores by class, weights by client, best and final."""
    folder = RunFolder(path)
    if not folder.is_run():
        raise RunError(f"{path} holds no run")
    recipe = make_recipe(folder.read_json("recipe.json"), f"recipe of {path}")
    federation, records = folder.read_json("federation.json"), folder.records()
    finished = folder.file("summary.json").exists()
    summary = folder.read_json("summary.json") if finished else None
    if as_json:
        parts = {"recipe": recipe.model_dump(mode="json"), "federation": federation}
        print_json({**parts, "rounds": records, "summary": summary})
    elif not quiet:
        console = Console()
        console.print(_heading(federation, recipe.method.name, len(records), recipe.rounds.number))
        if records and "lr" in records[-1]:
            rates = f"{records[0]['lr']:.4g} in round 1, {records[-1]['lr']:.4g} in the last"
            console.print(f"learning rate: {rates}", highlight=False)
        if records:
            console.print(_classes(federation, records[-1]))
        if all("samples" in client for client in federation["clients"]):
            console.print(_clients(federation))
        for note in federation["notes"]:
            console.print(f"note: {note}", markup=False)
        if summary:
            console.print(ending(summary, path), markup=False, highlight=False)
        else:
            console.print(f"unfinished; go on with: fedbb run --resume {path}", markup=False)


def _heading(federation: dict[str, Any], method: str, done: int, rounds: int) -> str:
    scored = "".join(f", {number} {name}" for name, number in federation["scored"].items())
    return (
        f"{method} on {federation['data']} ({federation['task']}): {federation['train']} train"
        f"{scored}; {len(federation['clients'])} clients; {done} of {rounds} rounds"
    )


def _classes(federation: dict[str, Any], record: dict[str, Any]) -> Table:
    per_class = record["scores"]["test"]["per_class"]
    table = Table(title=f"Classes after round {record['round']}, test data", title_justify="left")
    table.add_column("class")
    positives = federation["positives"]
    if positives is not None:
        table.add_column("positives", justify="right")
    for name in per_class:
        table.add_column(COLUMNS.get(name, name), justify="right")
    for place, name in enumerate(federation["classes"]):
        held = [] if positives is None else [f"{positives[place]:g}"]
        table.add_row(name, *held, *(percent(vector[place]) for vector in per_class.values()))
    return table


def _clients(federation: dict[str, Any]) -> Table:
    table = Table(title="Clients", title_justify="left")
    for name in ("client", "samples", "dispersion", "weight", "by samples", "loss weight"):
        table.add_column(name, justify="right")
    for client in federation["clients"]:
        spread, scale = client["dispersion"], client["loss_weight"]
        table.add_row(
            str(client["client"]),
            str(client["samples"]),
            "–" if spread is None else f"{spread:.4f}",
            f"{client['weight']:.4f}",
            f"{client['weight_by_samples']:.4f}",
            "–" if scale is None else f"{scale:.3f}",
        )
    return table
