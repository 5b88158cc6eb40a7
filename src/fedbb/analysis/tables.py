"""An inspection as short tables of classes and clients, and as HTML that notebooks display."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from fedbb._util.table import Table, elide, make_table
from fedbb._util.table import to_html as to_html_table
from fedbb.records import FloatArray, Task

if TYPE_CHECKING:
    from fedbb.analysis.inspect import Inspection

NAME = 18
_ROWS = 12


def first_and_last(places: Sequence[int], most: int) -> list[int]:
    """Return at most `most` places: the first ones and, one fewer if odd, the last ones.

    A long list is shortened in its middle, since the extremes are what one looks for.

    >>> first_and_last(range(10), 5)
    [0, 1, 2, 8, 9]
    """
    if len(places) <= most:
        return list(places)
    front = most - most // 2
    return [*places[:front], *places[len(places) - most // 2 :]]


def to_html(found: Inspection) -> str:
    """Return the classes, the clients, warnings and advice as tables and lists."""
    held = found.statistics
    warnings = [warning.text for warning in found.warnings]
    return "\n".join(
        [
            f"<h4>{escape(found.title)}: {found.samples:,} samples, "
            f"{len(held.clients)} clients, {len(held.classes)} classes</h4>",
            to_html_table(largest_and_smallest_classes(found, _ROWS)),
            to_html_table(largest_and_smallest_clients(found, _ROWS)),
            _list("Warnings", warnings),
            _list("Advice", found.advice.reasons),
        ]
    )


def largest_and_smallest_classes(found: Inspection, most: int) -> Table:
    """Return a row for each class, of many the largest and the smallest."""
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
        for place in first_and_last(order, most)
    ]
    head = ("class", "pos. A", "neg. B", "E(A)", "E(B)", "α⁺", "loss %", "PNB %")
    return make_table(head, _with_gap(rows, most, len(order)))


def largest_and_smallest_clients(found: Inspection, most: int) -> Table:
    """Return a row for each client, of many the largest and the smallest."""
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
        for place in first_and_last(order, most)
    ]
    head = ("client", "samples", "absent", "distance", "R", "FedAvg", "CBR", "PNB weight")
    return make_table(head, _with_gap(rows, most, len(order)))


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


def _list(title: str, texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<p>{title}</p><ul>{items}</ul>" if texts else ""
