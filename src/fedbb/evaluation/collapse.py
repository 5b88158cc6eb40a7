"""Tells a model that has died: it gives every sample the same scores, whatever it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CHANCE = 0.5


def is_collapsed(per_class: Mapping[str, Sequence[float | None]]) -> bool:
    """Return whether every class is said of all samples or of none, and ranked at chance."""
    ranks = [value for value in per_class["auroc"] if value is not None]
    found = [value for value in per_class["recall"] if value is not None]
    at_chance = all(value == CHANCE for value in ranks)
    return bool(ranks) and at_chance and all(value in (0.0, 1.0) for value in found)
