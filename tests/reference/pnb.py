"""PNB loop by loop, in plain Python: Eq. 3 to 6 and Eq. 8, with the paper's misprints put right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext

Row = Sequence[float]


def effective_number(count: float, beta: float | str, tau: float = 1.0) -> Decimal:
    """Return Eq. 3 to fifty digits; a β given as text is taken as that exact decimal."""
    with localcontext(prec=50):
        base = Decimal(beta)
        power = Decimal(count) / Decimal(tau)
        return (1 - base**power) / (1 - base) if power else Decimal(0)


def case_weights(positive: float, negative: float, beta: float, tau: float) -> tuple[float, float]:
    """Return (α⁺, α⁻) of one class by Eq. 4 as printed; both cases must occur."""
    inverse_positive = 1 / effective_number(positive, beta, tau)
    inverse_negative = 1 / effective_number(negative, beta, tau)
    total = inverse_positive + inverse_negative
    return float(inverse_positive / total), float(inverse_negative / total)


def multilabel(logits: Sequence[Row], targets: Sequence[Row], alphas: Row, mu: float) -> float:
    """Return Eq. 6 as a mean over samples and classes; probabilities are formed as written."""
    total = 0.0
    entries = 0
    for row, truth in zip(logits, targets, strict=True):
        for logit, present, alpha in zip(row, truth, alphas, strict=True):
            probability = 1 / (1 + math.exp(-logit))
            positive = alpha * present * math.log(probability)
            negative = (1 - alpha) * (1 - present) * math.log(1 - probability)
            total += mu * alpha * (positive + negative)
            entries += 1
    return -total / entries


def multiclass(logits: Sequence[Row], targets: Sequence[int], alphas: Row, mu: float) -> float:
    """Return Eq. 8 as a mean over samples, with the minus sign and the softmax it lacks."""
    total = 0.0
    for row, truth in zip(logits, targets, strict=True):
        exponentials = [math.exp(logit) for logit in row]
        for number, alpha in enumerate(alphas):
            present = 1 if number == truth else 0
            total += mu * alpha * present * math.log(exponentials[number] / sum(exponentials))
    return -total / len(targets)
