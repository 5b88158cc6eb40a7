"""FedLC loop by loop, in plain Python: the pairwise margins as they are printed."""

from __future__ import annotations

import math
from collections.abc import Sequence

Row = Sequence[float]


def pairwise(row: Row, truth: int, counts: Row, tau: float) -> float:
    """Return Σ_{i≠y} exp(f_i − f_y + τ·(n_y^(−1/4) − n_i^(−1/4))) over the classes with samples."""
    total = 0.0
    for number, logit in enumerate(row):
        if number != truth and counts[number] > 0:
            margin = tau * (counts[truth] ** -0.25 - counts[number] ** -0.25)
            total += math.exp(logit - row[truth] + margin)
    return total


def printed(logits: Sequence[Row], targets: Sequence[int], counts: Row, tau: float) -> float:
    """Return the batch mean of the loss whose denominator lacks the true class."""
    pairs = zip(logits, targets, strict=True)
    return sum(math.log(pairwise(row, truth, counts, tau)) for row, truth in pairs) / len(targets)


def stable(logits: Sequence[Row], targets: Sequence[int], counts: Row, tau: float) -> float:
    """Return the batch mean with the true class in the denominator, where it adds one."""
    pairs = zip(logits, targets, strict=True)
    return sum(math.log1p(pairwise(row, truth, counts, tau)) for row, truth in pairs) / len(targets)
