"""Focal loss loop by loop, in plain Python, with the probabilities formed as written."""

from __future__ import annotations

import math
from collections.abc import Sequence

Row = Sequence[float]


def multiclass(logits: Sequence[Row], targets: Sequence[int], gamma: float) -> float:
    """Return the mean over samples of (1 − p)^γ·(−log p), p that of the true class."""
    total = 0.0
    for row, truth in zip(logits, targets, strict=True):
        exponentials = [math.exp(logit) for logit in row]
        probability = exponentials[truth] / sum(exponentials)
        total += (1 - probability) ** gamma * -math.log(probability)
    return total / len(targets)


def entry(logit: float, present: float, gamma: float) -> float:
    """Return (1 − p)^γ·(−log p) of one yes or no, p that of the answer which is true."""
    probability = 1 / (1 + math.exp(-logit)) if present else 1 / (1 + math.exp(logit))
    return (1 - probability) ** gamma * -math.log(probability)


def multilabel(
    logits: Sequence[Row], targets: Sequence[Row], gamma: float, alpha: float | None
) -> float:
    """Return the mean over samples and classes, α on positives and 1 − α on negatives."""
    total = 0.0
    entries = 0
    for row, truth in zip(logits, targets, strict=True):
        for logit, present in zip(row, truth, strict=True):
            side = 1.0 if alpha is None else alpha if present else 1 - alpha
            total += side * entry(logit, present, gamma)
            entries += 1
    return total / entries
