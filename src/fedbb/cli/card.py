"""`fedbb card`: the model card of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbb._util.files import write_text
from fedbb.cli.common import Json, Quiet, echo, print_json
from fedbb.report.model_card import CardFields, model_card


def card(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    out: Annotated[
        Path | None, typer.Option(help="File for the card in Markdown; printed if not given.")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Model of the best round.")] = False,
    license: Annotated[str | None, typer.Option(help="Licence of the model.")] = None,
    data_license: Annotated[
        str | None, typer.Option(help="Licence or terms of the training data.")
    ] = None,
    contact: Annotated[str | None, typer.Option(help="Contact for questions.")] = None,
    intended_use: Annotated[str | None, typer.Option(help="Intended use of the model.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a model card: data, method, scores by class with intervals, clients, limits."""
    text = model_card(run, CardFields(license, data_license, contact, intended_use), best=best)
    if out is not None:
        write_text(out, text)
    if as_json:
        print_json({"card": text} if out is None else {"out": str(out)})
    elif out is None:
        echo(text, nl=False)
    elif not quiet:
        echo(f"{out} written")
