"""Level one: positives against negatives, and whose part of the loss they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbb.analysis.settings import Settings
from fedbb.imbalance.cases import case_weights, effective_number
from fedbb.records import FloatArray, Task


@dataclass(frozen=True, eq=False)
class Cases:
    """Figures of each class (C,); the shares are (2, C), of positives and of negatives.

    With every case of equal loss, `raw` is what each contributes to plain BCE or cross-entropy,
    `cased` after α weighs cases, `classed` after PNB's second factor too. Softmax scores positives
    only and has one factor, so there the last two are one.
    """

    positive: FloatArray
    negative: FloatArray
    effective_positive: FloatArray
    effective_negative: FloatArray
    alpha_positive: FloatArray
    alpha_negative: FloatArray
    raw: FloatArray
    cased: FloatArray
    classed: FloatArray


def measure_cases(
    positive: FloatArray, negative: FloatArray, task: Task, settings: Settings
) -> Cases:
    """Return the figures of classes with these cases (C,), as one client that held all of them."""
    beta, tau = settings.beta, settings.tau
    alpha, other = case_weights(positive, negative, beta=beta, tau=tau)
    raw, cased, classed = loss_shares(positive, negative, alpha, task)
    return Cases(
        positive,
        negative,
        effective_number(positive, beta, tau),
        effective_number(negative, beta, tau),
        alpha,
        other,
        raw,
        cased,
        classed,
    )


def loss_shares(
    positive: FloatArray, negative: FloatArray, alpha: FloatArray, task: Task
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (raw, cased, classed), each (2, C) and summing to one unless nothing weighs."""
    if task is Task.MULTICLASS:
        nothing = np.zeros_like(positive)
        weighed = _normalize(np.stack([alpha * positive, nothing]))
        return _normalize(np.stack([positive, nothing])), weighed, weighed
    cased = np.stack([alpha * positive, (1.0 - alpha) * negative])
    raw = np.stack([positive, negative])
    return _normalize(raw), _normalize(cased), _normalize(alpha * cased)


def _normalize(values: FloatArray) -> FloatArray:
    total = values.sum()
    return np.asarray(values / total) if total > 0 else values
