"""The `fedbb` command: one verb per file, errors as one message with exit code 2."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from fedbb import __version__
from fedbb.errors import FedbbError
from fedbb.simulation.pool import process_start as process_start
from fedbb.simulation.pool.process_start import usable_cores

VERBS = (
    "demo",
    "inspect",
    "run",
    "sweep",
    "paper",
    "show",
    "audit",
    "report",
    "compare",
    "personalize",
    "track",
    "flower",
    "methods",
    "cost",
    "data",
)


class Verbs(TyperGroup):
    """Each verb is the function, or group `app`, of the module of its name.

    A module is imported when its verb is called for: some need what takes seconds to load.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs in the order of the help."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb, None if there is none of this name."""
        if cmd_name not in VERBS:
            return None
        module = import_module(f"fedbb.cli.{cmd_name}")
        holder = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        if hasattr(module, "app"):
            holder.add_typer(module.app, name=cmd_name)
            return get_group(holder).commands[cmd_name]
        holder.command(cmd_name)(getattr(module, cmd_name))
        return get_command(holder)


app = typer.Typer(
    name="fedbb",
    cls=Verbs,
    help="Federated learning when labels are uneven.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    """Federated learning when labels are uneven."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    _begin_workers(sys.argv[1:])
    try:
        app()
    except FedbbError as error:
        print(f"fedbb: {error}", file=sys.stderr)
        sys.exit(2)


def _begin_workers(words: list[str]) -> None:
    """Let workers of verbs that have some import torch beside this process, not after it."""
    if words[:1] == ["run"] and "--help" not in words and usable_cores() > 1:
        process_start.prepare()


if __name__ == "__main__":
    main()
