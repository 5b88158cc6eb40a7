"""How a model serves one client: its accuracy on data that is mixed as the client's own."""

from __future__ import annotations

import numpy as np

from fedbb.records import FloatArray


def own_accuracy(recall: FloatArray, cases: FloatArray) -> float:
    """Return the mean of the recalls (C,) in the proportion of a client's cases (C,).

    That is the accuracy a test set would show whose classes came in the client's proportions, by
    all test images there are. A class without test images has no recall and stays out; NaN if the
    client holds none but such.

    >>> own_accuracy(np.array([0.9, 0.5]), np.array([30.0, 10.0]))
    0.8
    """
    held = (cases > 0) & ~np.isnan(recall)
    if not held.any():
        return float("nan")
    return float(recall[held] @ cases[held] / cases[held].sum())
