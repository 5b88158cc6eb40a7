"""The `fedbb` command: one verb per file, errors as one message with exit code 2."""

from __future__ import annotations

import sys

import typer

from fedbb import __version__
from fedbb.cli import (
    compare,
    cost,
    data,
    demo,
    inspect,
    methods,
    paper,
    report,
    run,
    show,
    sweep,
    track,
)
from fedbb.errors import FedbbError

app = typer.Typer(
    name="fedbb",
    help="Federated learning when labels are uneven.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("inspect")(inspect.inspect)
app.command("run")(run.run)
app.command("sweep")(sweep.sweep)
app.command("show")(show.show)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("track")(track.track)
app.command("methods")(methods.methods)
app.command("cost")(cost.cost)
app.add_typer(data.app, name="data")
app.add_typer(paper.app, name="paper")


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
