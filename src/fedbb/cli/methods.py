"""`fedbb methods`: every method, its slots and hyper-parameters."""

from __future__ import annotations

import inspect
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fedbb._util.text import counted
from fedbb.cli.common import Json, Quiet, print_json
from fedbb.methods import METHODS, build_method, hyper_parameters
from fedbb.penalties.base import Needs
from fedbb.records import Task


def methods(as_json: Json = False, quiet: Quiet = False) -> None:
    """List the methods a recipe may name, each with its four slots and defaults."""
    rows = [_describe(name) for name in METHODS]
    if as_json:
        print_json(rows)
    elif not quiet:
        console = Console(highlight=False)
        for row in rows:
            console.print(Text(row["name"], style="bold"))
            console.print(Padding(Text("\n".join(_lines(row))), (0, 0, 1, 4)))


def _describe(name: str) -> dict[str, Any]:
    method = build_method(name, {})
    return {
        "name": name,
        "about": (inspect.getdoc(METHODS[name]) or "").partition("\n\nArgs:")[0],
        "loss": type(method.loss).__name__,
        "penalties": [type(penalty).__name__ for penalty in method.penalties],
        "weighting": type(method.weighting).__name__,
        "merge": getattr(method.merge, "__name__", type(method.merge).__name__),
        "tasks": [str(task) for task in Task if method.loss.supports(task)],
        "cost": _cost(method.needs),
        "options": hyper_parameters(name),
    }


def _cost(needs: Needs) -> str:
    """Say what a step costs beside plain training; `fedbb cost` counts it."""
    parts = []
    if needs.forwards:
        parts.append(f"{needs.forwards} more forward passes a step")
    if needs.tail_width is not None:
        parts.append(f"the last stage again at {needs.tail_width:g} of its width")
    if needs.models:
        parts.append(f"{counted(needs.models, 'more model')} held")
    return ", ".join(parts) or "as FedAvg"


def _lines(row: dict[str, Any]) -> list[str]:
    slots = f"loss {row['loss']} · weighting {row['weighting']} · merge {row['merge']}"
    if row["penalties"]:
        slots += f" · penalties {', '.join(row['penalties'])}"
    facts = f"tasks {', '.join(row['tasks'])} · cost {row['cost']}"
    options = "  ".join(f"{key}={value}" for key, value in row["options"].items())
    return [row["about"], slots, facts, f"options {options}" if options else "no options"]
