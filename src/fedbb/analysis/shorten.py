"""Long lists cut down to what fits: both ends, since the extremes are what one looks for."""

from __future__ import annotations

from collections.abc import Sequence


def ends(places: Sequence[int], most: int) -> list[int]:
    """Return at most so many places, of the beginning and, one fewer if odd, of the end.

    >>> ends(range(10), 5)
    [0, 1, 2, 8, 9]
    """
    if len(places) <= most:
        return list(places)
    front = most - most // 2
    return [*places[:front], *places[len(places) - most // 2 :]]
