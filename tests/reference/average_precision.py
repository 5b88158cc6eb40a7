"""Average precision by its meaning: precision at each cut, weighted by the recall it gains."""

from __future__ import annotations

from collections.abc import Sequence


def average_precision(truth: Sequence[bool], scores: Sequence[float]) -> float:
    """Lower the cut through the distinct scores; equal scores are taken in together."""
    positives = sum(bool(positive) for positive in truth)
    total = 0.0
    recall_before = 0.0
    for cut in sorted(set(scores), reverse=True):
        taken = [positive for positive, score in zip(truth, scores, strict=True) if score >= cut]
        hits = sum(bool(positive) for positive in taken)
        total += hits / len(taken) * (hits / positives - recall_before)
        recall_before = hits / positives
    return total
