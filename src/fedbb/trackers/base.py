"""What a tracker is, and what it is told of a run before its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

ROUND = "round"
"""The measure that a tracker writes last of a round: where it is, the round is there whole."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker knows it.

    `identity` tells runs apart and consists of letters, digits, `-` and `_` only; `settings` are
    those of the recipe by dotted names. A new run replaces what was tracked of an earlier one.
    """

    name: str
    identity: str
    settings: Mapping[str, Any]
    is_new: bool = False


class Tracker(Protocol):
    """Takes the measures of one run; whatever goes wrong, it raises."""

    def begin(self, run: TrackedRun) -> int:
        """Open the place of a run and return the last round that it holds already, 0 for none."""
        ...

    def record(self, number: int, measures: Mapping[str, float]) -> None:
        """Keep the measures of a round, of which `round` is the last."""
        ...

    def end(self, summary: Mapping[str, float] | None) -> None:
        """Keep the measures of the best and the final round, or None if the run broke off."""
        ...
