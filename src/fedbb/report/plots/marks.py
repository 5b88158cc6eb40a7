"""A color, a marker and a line for each method, the same in every figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedbb.report.groups import MethodRuns
from fedbb.report.plots.canvas import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    SKY,
    SURFACE,
    VERMILION,
)


@dataclass(frozen=True)
class Mark:
    """How one method is drawn; marker and line tell it apart where colors cannot."""

    color: str
    marker: str | tuple[int, int, int]
    line: str


OWN = {
    "fedavg": Mark(BLUE, "o", "-"),
    "fedavg-scaled": Mark(ORANGE, "s", "--"),
    "fedbb": Mark(GREEN, "D", "-"),
    "fedbb-printed": Mark(SKY, "v", "-."),
    "fedbb-plus": Mark(GREEN, (4, 1, 0), "--"),
    "pnb": Mark(PURPLE, "^", ":"),
    "cbr": Mark(VERMILION, "P", "--"),
    "fedprox": Mark(SKY, "<", "--"),
    "moon": Mark(PURPLE, ">", "-."),
    "fednova": Mark(MUTED, "X", ":"),
    "fedalign": Mark(INK, "h", "-."),
    "fedlc": Mark(VERMILION, "p", "-"),
    "focal": Mark(ORANGE, "d", ":"),
    "cb": Mark(INK, "8", "--"),
}
OTHERS = (
    Mark(MUTED, "*", "-"),
    Mark(PURPLE, "H", "--"),
    Mark(VERMILION, "*", ":"),
    Mark(SKY, "H", "-"),
    Mark(INK, "*", "-."),
    Mark(GREEN, "H", ":"),
    Mark(BLUE, "*", "--"),
    Mark(ORANGE, "H", "-."),
)


def marks_of(methods: Sequence[MethodRuns]) -> list[Mark]:
    """Return a mark for each method: its own, or a free one for strangers and second variants."""
    given: list[Mark] = []
    strangers = 0
    for part in methods:
        own = OWN.get(part.method)
        if own is None or own in given:
            own = OTHERS[strangers % len(OTHERS)]
            strangers += 1
        given.append(own)
    return given


def point_look(mark: Mark, size: float) -> dict[str, Any]:
    """Return how a mark looks as a point without a line."""
    return {
        "color": mark.color,
        "marker": mark.marker,
        "linestyle": "none",
        "markersize": size,
        "markeredgecolor": SURFACE,
        "markeredgewidth": 0.7,
    }
