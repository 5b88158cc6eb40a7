"""The `fedbb` command: one verb per file, errors as one message with exit code 2."""

from __future__ import annotations

import sys

import typer

from fedbb import __version__
from fedbb.cli import cost, data, demo, methods, run, show
from fedbb.errors import FedbbError

app = typer.Typer(
    name="fedbb",
    help="Federated learning when labels are uneven.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("show")(show.show)
app.command("methods")(methods.methods)
app.command("cost")(cost.cost)
app.add_typer(data.app, name="data")


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
    try:
        app()
    except FedbbError as error:
        print(f"fedbb: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
