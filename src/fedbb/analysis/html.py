"""An inspection as a short piece of HTML, which notebooks display."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from fedbb._util.table import make_table
from fedbb._util.table import to_html as to_html_table

if TYPE_CHECKING:
    from fedbb.analysis.inspect import Inspection

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
            _classes(found),
            _clients(found),
            _list("Warnings", warnings),
            _list("Advice", found.advice.reasons),
        ]
    )


def _classes(found: Inspection) -> str:
    cases = found.cases
    order = sorted(range(len(found.statistics.classes)), key=lambda place: -cases.positive[place])
    rows = [
        (
            found.statistics.classes[place],
            f"{cases.positive[place]:,.0f}",
            f"{cases.negative[place]:,.0f}",
            f"{cases.alpha_positive[place]:.4f}",
            f"{cases.raw[:, place].sum():.2%}",
            f"{cases.classed[:, place].sum():.2%}",
        )
        for place in first_and_last(order, _ROWS)
    ]
    head = ("class", "positives", "negatives", "α⁺", "share of plain loss", "share with PNB")
    return to_html_table(make_table(head, rows))


def _clients(found: Inspection) -> str:
    clients, reading = found.clients, found.settings.reading
    order = sorted(range(len(clients.names)), key=lambda place: -int(clients.samples[place]))
    rows = [
        (
            clients.names[place],
            f"{clients.samples[place]:,}",
            f"{clients.distance[place]:.3f}",
            f"{clients.loss_weight[place]:.3f}",
            f"{clients.dispersions[reading][place]:.4f}",
            f"{clients.by_size[place]:.2%}",
            f"{clients.weights[reading][place]:.2%}",
        )
        for place in first_and_last(order, _ROWS)
    ]
    head = ("client", "samples", "distance", "mean PNB weight", "R", "FedAvg", "CBR")
    return to_html_table(make_table(head, rows))


def _list(title: str, texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<p>{title}</p><ul>{items}</ul>" if texts else ""
