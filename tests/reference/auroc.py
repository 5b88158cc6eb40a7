"""AUROC by its meaning: the share of (positive, negative) pairs in the right order, ties half."""

from __future__ import annotations

from collections.abc import Sequence


def auroc(truth: Sequence[bool], scores: Sequence[float]) -> float:
    """Count every pair; both cases must occur."""
    won = 0.0
    pairs = 0
    for positive, high in zip(truth, scores, strict=True):
        for other, low in zip(truth, scores, strict=True):
            if positive and not other:
                pairs += 1
                won += 1.0 if high > low else 0.5 if high == low else 0.0
    return won / pairs
