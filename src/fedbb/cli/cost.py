"""`fedbb cost`: what every method costs, in the paper's convention and as it happens."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from rich.console import Console

from fedbb._util.table import Table, make_table, to_rich
from fedbb.cli.common import AllowCode, Json, Quiet, print_json, say
from fedbb.errors import RecipeError
from fedbb.evaluation.cost import PUBLIC, method_cost
from fedbb.methods import Method, build_method
from fedbb.paper.tables import PAPER_CLASSES, PAPER_IMAGE, PAPER_MODEL, PAPER_TABLE
from fedbb.runs.cost_estimate import Work, time_methods

SHOWN = (
    *("fedavg", "fedprox", "moon", "fednova", "fedalign", "scaffold", "feddyn"),
    *("fedlc", "fedbb", "moon+fedbb", "fedalign+fedbb", "fedopt-sca"),
)


def cost(
    model: Annotated[str, typer.Option(help="The network by name.")] = PAPER_MODEL,
    classes: Annotated[int, typer.Option(min=1, help="Number of classes.")] = PAPER_CLASSES,
    image: Annotated[str, typer.Option(help="Channels × height × width.")] = "3x32x32",
    method: Annotated[
        list[str] | None, typer.Option("--method", help="Only this method; repeatable.")
    ] = None,
    images: Annotated[
        int, typer.Option(min=0, help="Images to time a client's round on; 0 times nothing.")
    ] = 32,
    allow_code: AllowCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show parameters, MACs, bytes, memory and measured time of the methods.

    The default is the paper's own setting; its table is shown beside ours. A network may also be
    package.module:function, with --allow-code; methods that need what it lacks are left out.
    """
    shape = _shape(image)
    chosen = {name: build_method(name, {}) for name in method or SHOWN}
    rows, left_out = [], []
    for name, each in chosen.items():
        try:
            rows.append(_row(name, each, Work(model, classes, shape), allow_code))
        except RecipeError as error:
            if method or each.needs.tail_width is None:
                raise
            left_out.append(f"{name} is left out: {error}")
    if images:
        fitting = {row["method"]: chosen[row["method"]] for row in rows}
        work = Work(model, classes, shape, images)
        seconds = time_methods(fitting, work, allow_code=allow_code)
        for row in rows:
            row["seconds"] = round(seconds[row["method"]], 4)
    if as_json:
        print_json(rows)
    elif not quiet:
        console = Console()
        console.print(to_rich(_table(rows, f"{model}, {classes} classes, {image}", images)))
        for row in rows:
            if row["note"]:
                say(console, f"{row['method']}: {row['note']}")
        for line in left_out:
            say(console, line)
        console.print(
            "M: millions. MACs are per image: of a whole training step, and, as the paper counts, "
            "of forward passes only, parameters without batch norm. Sent: in each direction "
            "and round, down / up where they differ; tables of outputs are counted for "
            f"{PUBLIC} public inputs, training on them is not. Seconds: a client's epoch of "
            f"{images} images, measured here in turns.",
            highlight=False,
        )


def _shape(image: str) -> tuple[int, int, int]:
    found = re.fullmatch(r"(\d+)[x×](\d+)[x×](\d+)", image)
    if not found or not all(int(part) > 0 for part in found.groups()):
        raise RecipeError(f"--image {image!r} must be channels x height x width, as in 3x32x32")
    return int(found[1]), int(found[2]), int(found[3])


def _row(name: str, method: Method, work: Work, allow_code: bool) -> dict[str, Any]:
    setting = (work.model, work.classes, work.image_shape)
    found = method_cost(method, *setting, allow_code=allow_code)
    same = setting == (PAPER_MODEL, PAPER_CLASSES, PAPER_IMAGE)
    printed = PAPER_TABLE.get(name) if same else None
    return {
        "method": name,
        "parameters": found.parameters,
        "training_macs": found.training_macs,
        "sent_bytes": found.sent_bytes,
        "broadcast_bytes": found.broadcast_bytes,
        "statistics_bytes": found.statistics_bytes,
        "compressed_bytes": found.compressed_bytes,
        "extra_bytes": found.extra_bytes,
        "paper_convention": {"parameters": found.paper_parameters, "macs": found.paper_macs},
        "printed": printed and {"parameters": printed.parameters, "macs": printed.macs},
        "note": printed.note if printed else "",
    }


def _sent(row: dict[str, Any]) -> str:
    """Say what goes down and up in a round: one number if both are the same."""
    model, compressed = row["sent_bytes"], row["compressed_bytes"]
    down, up = (
        f"{sent / 1e6:.2f}"
        for sent in (
            model + row["broadcast_bytes"],
            (model if compressed is None else compressed) + row["statistics_bytes"],
        )
    )
    return down if down == up else f"{down} / {up}"


def _table(rows: list[dict[str, Any]], title: str, images: int) -> Table:
    timed = ["seconds"] if images else []
    head = ("method", "held, M", "step MACs, M", "sent, MB", "extra, MB", *timed)
    lines = []
    for row in rows:
        paper, printed = row["paper_convention"], row["printed"]
        line = (
            row["method"],
            f"{row['parameters'] / 1e6:.2f}",
            f"{row['training_macs'] / 1e6:.1f}",
            _sent(row),
            f"{row['extra_bytes'] / 1e6:.2f}",
            *([f"{row['seconds']:.2f}"] if images else []),
            f"{paper['parameters'] / 1e6:.2f} / {paper['macs'] / 1e6:.1f}",
            f"{printed['parameters']} / {printed['macs']}" if printed else None,
        )
        lines.append(line)
    caption = f"Cost of a client's training: {title}"
    return make_table((*head, "paper's count", "printed"), lines, caption)
