"""Class-balanced loss loop by loop, in plain Python: weights, three forms, both tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reference.focal import entry
from reference.pnb import effective_number

Row = Sequence[float]


def weights(counts: Row, beta: float) -> list[float]:
    """Return 1/E of each class, zero for an absent one, scaled to sum to the number of classes."""
    inverse = [float(1 / effective_number(count, beta)) if count else 0.0 for count in counts]
    return [len(counts) * value / sum(inverse) for value in inverse]


def softmax(logits: Sequence[Row], targets: Sequence[int], weights: Row) -> float:
    """Return the batch mean of the weighted cross-entropy."""
    total = 0.0
    for row, truth in zip(logits, targets, strict=True):
        share = math.exp(row[truth]) / sum(math.exp(logit) for logit in row)
        total -= weights[truth] * math.log(share)
    return total / len(targets)


def sigmoid(logits: Sequence[Row], targets: Sequence[int], weights: Row, gamma: float) -> float:
    """Return the batch mean of one yes or no per class, all weighted by the sample's class."""
    total = 0.0
    for row, truth in zip(logits, targets, strict=True):
        for number, logit in enumerate(row):
            total += weights[truth] * entry(logit, float(number == truth), gamma)
    return total / len(targets)


def multilabel(logits: Sequence[Row], targets: Sequence[Row], weights: Row, gamma: float) -> float:
    """Return the mean over samples and classes, every entry weighted by its class."""
    total = 0.0
    entries = 0
    for row, truth in zip(logits, targets, strict=True):
        for logit, present, weight in zip(row, truth, weights, strict=True):
            total += weight * entry(logit, present, gamma)
            entries += 1
    return total / entries
