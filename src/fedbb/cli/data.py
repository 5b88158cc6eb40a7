"""`fedbb data`: which data sets there are, getting them, checking them, looking at one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import DownloadColumn

from fedbb._util.table import make_table, to_rich
from fedbb.cli.common import Json, Quiet, echo, print_json, progress_bar, say
from fedbb.data.download import cache_folder
from fedbb.data.registry import (
    CacheStatus,
    cache_status,
    check_files,
    dataset_names,
    find_entry,
    get_dataset,
    load_dataset,
)
from fedbb.data.source import Source
from fedbb.recipes.reader import read_values

app = typer.Typer(help="List, get and check data sets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A data set, as `fedbb data list` names it.")]


@app.command("list")
def list_data(as_json: Json = False, quiet: Quiet = False) -> None:
    """List the data sets a recipe may name, and which of them are on this machine."""
    rows = [_row(name) for name in dataset_names()]
    if as_json:
        print_json(rows)
    elif not quiet:
        console = Console()
        head = ("data set", "task", "what it is", "origin", "here")
        console.print(to_rich(make_table(head, map(_shown, rows), words=5)))
        say(console, f"Downloads are kept in {cache_folder()} (FEDBB_DATA chooses another).")


@app.command("get")
def get(
    name: Name,
    local: Annotated[
        Path | None, typer.Option("--from", help="Use a file or folder that you already have.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Download a data set, or copy it from a local file, and verify its SHA-256."""
    with progress_bar(
        name, hidden=quiet or as_json, column=DownloadColumn(), remaining=True
    ) as advance:
        held = get_dataset(name, local=local, progress=advance)
    _tell(held, "is here", as_json, quiet)


@app.command("check")
def check(
    name: Name,
    path: Annotated[Path | None, typer.Option("--path", help="Your own file or folder.")] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of the data set."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Verify a data set: stored files by SHA-256, your own by reading them whole."""
    if find_entry(name).origin != "your files" and path is None:
        _tell(check_files(name), "is whole", as_json, quiet)
        return
    with progress_bar("images", hidden=quiet or as_json, remaining=True) as advance:
        given = read_values(options or [])
        dataset = load_dataset(Source(name, path=path, options=given, progress=advance))
    facts = {
        "name": name,
        "task": str(dataset.task),
        "classes": list(dataset.classes),
        "train": len(dataset.train),
        "test": len(dataset.test),
        **({} if dataset.validation is None else {"validation": len(dataset.validation)}),
        "shape": list(dataset.train.inputs.shape[1:]),
        "columns": list(dataset.train.columns),
    }
    if as_json:
        print_json(facts)
    elif not quiet:
        for key, value in facts.items():
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            echo(f"{key}: {shown}")
        for note in dataset.notes:
            echo(f"note: {note}")


def _row(name: str) -> dict[str, Any]:
    entry, held = find_entry(name), cache_status(name)
    return {
        "name": name,
        "task": None if entry.task is None else str(entry.task),
        "about": entry.description,
        "origin": entry.origin,
        "here": held.present,
        "bytes": held.size,
    }


def _shown(row: dict[str, Any]) -> tuple[str, ...]:
    here = "–" if row["origin"] == "your files" else "yes" if row["here"] else "no"
    return row["name"], row["task"] or "either", row["about"], row["origin"], here


def _tell(held: CacheStatus, what: str, as_json: bool, quiet: bool) -> None:
    if as_json:
        files = [str(path) for path in held.files]
        print_json({"name": held.name, "present": held.present, "files": files, "bytes": held.size})
    elif not quiet:
        size = f", {held.size / 1e6:.1f} MB" if held.size else ""
        echo(f"{held.name} {what}{size}")
