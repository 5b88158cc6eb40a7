"""What sums over changing groups give away of single clients: equations that have one solution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbb.records import FloatArray

_SURE = 1e-6


def solve_weights(
    groups: Sequence[Sequence[int]], sums: Sequence[float], clients: int
) -> dict[int, float]:
    """Return the weights of clients that follow from sums over groups of them.

    A client's weight follows if some mixture of the groups is that client alone. From sums over
    {0, 1, 2} and {1, 2} that of client 0 does; of the other two only their sum is known.
    """
    taking_part = np.zeros((len(groups), clients))
    for row, group in enumerate(groups):
        taking_part[row, list(group)] = 1.0
    inverse: FloatArray = np.asarray(np.linalg.pinv(taking_part), dtype=np.float64)
    found = np.diag(inverse @ taking_part) > 1 - _SURE
    solution = inverse @ np.asarray(sums, dtype=np.float64)
    return {client: float(solution[client]) for client in np.flatnonzero(found).tolist()}
