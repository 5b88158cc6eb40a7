"""The `fedbb` command: one verb per file, errors as one message with exit code 2."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import sys
from importlib import import_module, metadata
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from fedbb._util.interrupt import STOPPED, end_at_once, on_interrupt
from fedbb._util.text import visible
from fedbb._version import __version__
from fedbb.errors import FedbbError
from fedbb.simulation.pool import process_start
from fedbb.simulation.pool.process_start import usable_cores

PACKAGES = (
    "torch",
    "numpy",
    "scikit-learn",
    "safetensors",
    "pydantic",
    "typer",
    "flwr",
    "cryptography",
)
"""Packages, as far as they are installed, that `--version` lists."""

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""Errors of a write, which do not name the file."""

VERBS = {
    "demo": "Compare four methods on embedded data, and write a page.",
    "inspect": "Analyze the imbalance of labels and what PNB and CBR would do about it.",
    "run": "Train a recipe and save everything in a run folder.",
    "sweep": "Run all cells of a grid in parallel and write their table.",
    "tune": "Choose learning rate and options of a recipe on validation data.",
    "paper": "Run the paper's tables beside its printed numbers.",
    "show": "Show a run: recipe, scores by class, weights by client, best and final round.",
    "audit": "Show what the server of a run learned about its clients.",
    "report": "Write one self-contained HTML page that compares runs.",
    "watch": "Serve the report page of runs to this machine while they train.",
    "compare": "Compare two runs or groups of runs by paired differences.",
    "verify": "Run a stored result again and check whether the result is the same.",
    "personalize": "Evaluate a run's final model on each client, before and after fine-tuning.",
    "refit": "Set the classifier of finished runs in closed form and score it.",
    "predict": "Predict with a run's model; scores if the data has labels.",
    "export": "Write a run's model as ONNX, PyTorch program or state_dict.",
    "card": "Write a model card: data, method, scores with intervals, limits.",
    "track": "Export runs to TensorBoard, MLflow or Weights & Biases.",
    "flower": "Run recipes across real sites with Flower.",
    "methods": "List the methods a recipe can name, with their parts and defaults.",
    "cost": "Show parameters, MACs, bytes, memory and measured time of the methods.",
    "data": "List, download and check data sets.",
}
"""Every verb with its line in `fedbb --help`."""


class Verbs(TyperGroup):
    """Each verb is the function, or group `app`, of the module of its name.

    A module is imported only when its verb is called, because some take seconds to load. The list
    of verbs in the help is made from the table above and imports none of them.
    """

    listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs in the order of the help."""
        return list(VERBS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without importing the verbs."""
        self.listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.listing = False

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; one that says nothing of Ctrl-C itself ends with a message."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _stop()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb, or None if there is none of this name."""
        if cmd_name not in VERBS:
            return None
        if self.listing:
            return TyperCommand(cmd_name, help=VERBS[cmd_name])
        with on_interrupt(end_at_once):
            module = import_module(f"fedbb.cli.{cmd_name}")
        holder = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        if hasattr(module, "app"):
            holder.add_typer(module.app, name=cmd_name)
            return _tidy(get_group(holder).commands[cmd_name])
        holder.command(cmd_name)(getattr(module, cmd_name))
        return _tidy(get_command(holder))


def _tidy(command: Any) -> Any:
    """Return a command, or a group with its commands, whose texts are fit for a terminal."""
    if command.help:
        # Typer keeps the line breaks of the source inside later paragraphs.
        paragraphs = command.help.split("\n\n")
        command.help = "\n\n".join(" ".join(text.split()) for text in paragraphs)
    for parameter in command.params:
        # Otherwise click names the variable 'None' in its errors.
        parameter.show_envvar = False
    for inner in getattr(command, "commands", {}).values():
        _tidy(inner)
    return command


app = typer.Typer(
    name="fedbb",
    cls=Verbs,
    help="Federated learning with imbalanced labels.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(
        False, "--version", help="Print versions of fedbb and its environment, and stop."
    ),
) -> None:
    """Federated learning with imbalanced labels."""
    if version:
        typer.echo(describe_environment())
        raise typer.Exit


def describe_environment() -> str:
    """Return the versions that a bug report needs, without importing what is heavy."""
    versions = []
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    python = f"Python {platform.python_version()} on {system}, {usable_cores()} cores"
    return f"fedbb {__version__}\n{python}\n{', '.join(versions)}"


def main() -> None:
    """Run the command line."""
    try:
        _begin_workers(sys.argv[1:])
        app()
    except KeyboardInterrupt:
        _stop()
    except FedbbError as error:
        _fail(str(error))
    except OSError as error:
        # What no verb foresees: a missing folder or right, a full disk.
        from fedbb._util.files import explain_error

        if error.filename is not None:
            _fail(f"{os.fsdecode(error.filename)}: {explain_error(error)}")
        if error.errno in DISK_ERRORS:
            _fail(f"a file cannot be written: {error.strerror}")
        raise


def _stop() -> NoReturn:
    print("stopped", file=sys.stderr)
    sys.exit(STOPPED)


def _fail(message: str) -> NoReturn:
    print(f"fedbb: {visible(message)}", file=sys.stderr)
    sys.exit(2)


def _begin_workers(words: list[str]) -> None:
    """Let workers of verbs that have some import torch beside this process, not after it."""
    if words[:1] == ["run"] and "--help" not in words and usable_cores() > 1:
        process_start.prepare()


if __name__ == "__main__":
    main()
