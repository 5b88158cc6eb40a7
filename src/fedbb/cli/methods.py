"""`fedbb methods`: every method, its slots and hyper-parameters."""

from __future__ import annotations

import inspect
from typing import Any

from rich.console import Console
from rich.table import Table

from fedbb.cli.options import Json, Quiet, print_json
from fedbb.methods import METHODS, build_method, hyper_parameters


def methods(as_json: Json = False, quiet: Quiet = False) -> None:
    """List the methods a recipe may name, each with its four slots and defaults."""
    rows = [_describe(name) for name in METHODS]
    if as_json:
        print_json(rows)
    elif not quiet:
        Console().print(_table(rows))


def _describe(name: str) -> dict[str, Any]:
    method = build_method(name, {})
    return {
        "name": name,
        "about": inspect.getdoc(METHODS[name]),
        "loss": type(method.loss).__name__,
        "penalties": [type(penalty).__name__ for penalty in method.penalties],
        "weighting": type(method.weighting).__name__,
        "merge": getattr(method.merge, "__name__", type(method.merge).__name__),
        "options": hyper_parameters(name),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(show_lines=True)
    for heading in ("method", "what it is", "loss", "penalties", "weighting", "merge", "options"):
        table.add_column(heading)
    for row in rows:
        options = " ".join(f"{key}={value}" for key, value in row["options"].items())
        penalties = ", ".join(row["penalties"]) or "–"
        slots = (row["loss"], penalties, row["weighting"], row["merge"])
        table.add_row(row["name"], row["about"], *slots, options or "–")
    return table
