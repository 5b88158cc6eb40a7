"""`fedbb export`: a trained model in the formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbb.cli.common import AllowCode, Json, Quiet, echo, print_json
from fedbb.errors import RunError
from fedbb.inference.export import SUFFIXES, Format, export_model
from fedbb.inference.model import load_model


def export(
    run: Annotated[Path, typer.Argument(help="A run folder, or a model file of one.")],
    to: Annotated[Format, typer.Option(help="Format to write.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; named by the run if not given.")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Use the model of the best round.")] = False,
    client: Annotated[
        int | None, typer.Option(min=0, help="Use the model that this client has of its own.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
    allow_code: AllowCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a trained model as ONNX, as a PyTorch program or as a state_dict, and check it.

    The exported model is run beside the original; it is kept only if they agree.
    """
    name = run.name if run.is_dir() else run.stem
    path = out or Path(f"{name}{SUFFIXES[to]}")
    if path.exists() and not force:
        raise RunError(f"{path} exists; --force overwrites it, --out names another file")
    if not path.parent.is_dir():
        raise RunError(f"{path} cannot be written: {path.parent} is not a folder")
    model = load_model(run, best=best, client=client, allow_code=allow_code)
    difference = export_model(model, path, to)
    if as_json:
        print_json({"out": str(path), "format": to, "difference": difference})
    elif not quiet:
        echo(f"{path} written; largest difference from the original {difference:.1e}")
