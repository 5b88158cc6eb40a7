"""CBR loop by loop, in plain Python: Eq. 9 to 12 as printed, and the readings offered instead."""

from __future__ import annotations

import math
from collections.abc import Sequence

Row = Sequence[float]


def squared_distances(values: Row) -> list[float]:
    """Return Eq. 9."""
    mean = sum(values) / len(values)
    return [(value - mean) ** 2 for value in values]


def printed(counts: Row) -> float:
    """Return Eq. 10 to the letter; the counts must not all be equal."""
    distances = squared_distances(counts)
    total = sum(distances)
    return sum(distance / total for distance in distances)


def variance(values: Row) -> float:
    """Return the mean of Eq. 9."""
    return sum(squared_distances(values)) / len(values)


def dispersion(counts: Row, whole: float, reading: str) -> float:
    """Return R of one client; `whole` is what its shares are taken of."""
    shares = [count / whole for count in counts]
    readings = {
        "printed": lambda: printed(counts),
        "count-std": lambda: math.sqrt(variance(counts)),
        "share-var": lambda: variance(shares),
        "share-std": lambda: math.sqrt(variance(shares)),
    }
    return readings[reading]()


def weights(dispersions: Row, samples: Row, gamma: float) -> list[float]:
    """Return Eq. 11 and 12."""
    inverse = [1 / dispersion for dispersion in dispersions]
    by_evenness = [value / sum(inverse) for value in inverse]
    by_size = [size / sum(samples) for size in samples]
    pairs = zip(by_evenness, by_size, strict=True)
    return [gamma * even + (1 - gamma) * size for even, size in pairs]
