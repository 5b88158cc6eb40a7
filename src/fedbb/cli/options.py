"""Options that several verbs share."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def print_json(value: Any, *, indent: int | None = 1) -> None:
    """Print a value as JSON on standard output."""
    typer.echo(json.dumps(value, indent=indent, ensure_ascii=False))
