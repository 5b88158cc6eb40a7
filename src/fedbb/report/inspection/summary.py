"""An inspection on one terminal screen: one line per level, both ends of long tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from fedbb._util.table import Table, elide, make_table, to_rich
from fedbb.analysis.html import first_and_last
from fedbb.analysis.inspect import Inspection
from fedbb.analysis.warnings import mean_distance
from fedbb.records import FloatArray, Task

CLASSES, CLIENTS, WARNINGS = 8, 6, 5
NAME = 18


def print_summary(found: Inspection, console: Console) -> None:
    """Print the screen."""
    for part in summary(found):
        console.print(part, highlight=False)


def summary(found: Inspection) -> Iterator[RenderableType]:
    """Yield the parts of the screen from top to bottom."""
    task = "multi-class" if found.statistics.task is Task.MULTICLASS else "multi-label"
    clients = len(found.statistics.clients)
    yield Text.assemble(
        (elide(found.title, 60), "bold"),
        f": {found.samples:,} samples ({task}), {len(found.statistics.classes):,} classes, "
        f"{clients:,} client{'s' if clients != 1 else ''}",
    )
    yield Text(_class_line(found))
    yield to_rich(_class_table(found), wrap=False)
    if clients > 1:
        yield Text(_client_line(found))
        yield to_rich(_client_table(found), wrap=False)
    yield from _warnings(found)
    options = ", ".join(f"{key} {value}" for key, value in found.advice.options.items())
    yield Text.assemble(("advice ", "bold"), f"{options}   (why: --suggest)")


def _class_line(found: Inspection) -> str:
    classes = found.classes
    line = (
        f"largest : smallest class {classes.ratio:.4g} : 1, Gini {classes.gini:.2f}, "
        f"entropy {classes.entropy:.2f} bits, equivalent to {classes.effective:.1f} equal classes"
    )
    if classes.sets is not None:
        line += f"; {classes.sets.seen:,} of 2^{classes.sets.classes} label sets seen"
        line += f", {classes.sets.rare:,} of them rare"
    return line


def _class_table(found: Inspection) -> Table:
    cases, task = found.cases, found.statistics.task
    order = sorted(range(len(found.statistics.classes)), key=lambda place: -cases.positive[place])
    rows = [
        (
            elide(found.statistics.classes[place], NAME),
            f"{cases.positive[place]:,.0f}",
            f"{cases.negative[place]:,.0f}",
            _effective(cases.effective_positive[place]),
            _effective(cases.effective_negative[place]),
            f"{cases.alpha_positive[place]:.4f}",
            _shares(cases.raw[:, place], task),
            _shares(cases.classed[:, place], task),
        )
        for place in first_and_last(order, CLASSES)
    ]
    head = ("class", "pos. A", "neg. B", "E(A)", "E(B)", "α⁺", "loss %", "PNB %")
    return make_table(head, _with_gap(rows, CLASSES, len(order)))


def _with_gap(rows: Sequence[tuple[str, ...]], most: int, number: int) -> list[tuple[str, ...]]:
    """Return rows with one in the middle that counts those left out."""
    if number <= most:
        return list(rows)
    front = most - most // 2
    gap = (f"… {number - most:,} more", *["…"] * (len(rows[0]) - 1))
    return [*rows[:front], gap, *rows[front:]]


def _shares(pair: FloatArray, task: Task) -> str:
    """Return a class's part of the loss; of multi-label data that of positives and negatives."""
    positive, negative = (100.0 * float(value) for value in pair)
    return f"{positive:.1f}" if task is Task.MULTICLASS else f"{positive:.1f}+{negative:.1f}"


def _effective(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


def _client_line(found: Inspection) -> str:
    clients, reading = found.clients, found.settings.reading
    return (
        f"mean distance of clients from all data {mean_distance(clients):.4f} (random clients: "
        f"{float(clients.by_size @ clients.noise):.4f}); weights equivalent to "
        f"{clients.effective['fedavg']:.1f} equal clients by size, "
        f"{clients.effective[reading]:.1f} by CBR ({reading}, γ = {found.settings.gamma:g})"
    )


def _client_table(found: Inspection) -> Table:
    clients, reading = found.clients, found.settings.reading
    order = sorted(range(len(clients.names)), key=lambda place: -int(clients.samples[place]))
    rows = [
        (
            elide(clients.names[place], NAME),
            f"{clients.samples[place]:,}",
            f"{clients.absent[place]}",
            f"{clients.distance[place]:.3f}",
            f"{clients.dispersions[reading][place]:.4f}",
            f"{clients.by_size[place]:.2%}",
            f"{clients.weights[reading][place]:.2%}",
            f"{clients.loss_weight[place]:.3f}",
        )
        for place in first_and_last(order, CLIENTS)
    ]
    head = ("client", "samples", "absent", "distance", "R", "FedAvg", "CBR", "PNB weight")
    return make_table(head, _with_gap(rows, CLIENTS, len(order)))


def _warnings(found: Inspection) -> Iterator[Text]:
    for warning in found.warnings[:WARNINGS]:
        yield Text.assemble(("! ", "bold yellow"), warning.text)
    if len(found.warnings) > WARNINGS:
        yield Text(f"  and {len(found.warnings) - WARNINGS} more (--json, --out)")
