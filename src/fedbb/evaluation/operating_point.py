"""From a model's outputs to decisions: thresholds of classes, and adjustment by class shares."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedbb.losses.logit_adjusted import log_margins
from fedbb.records import FloatArray, LabelCounts, Task

ThresholdRule = Literal["youden", "f1"] | float
"""How a threshold is chosen: by name, or a number for the sensitivity that it must reach."""

HALF = 0.5


def choose_thresholds(
    targets: npt.ArrayLike, probabilities: npt.ArrayLike, rule: ThresholdRule = "youden"
) -> FloatArray:
    """Return for each class the probability above which it is predicted.

    Choose on validation data: scores on the data that a threshold was chosen on are too high. Of
    equally good thresholds the highest is taken. A class without positive or without negative cases
    keeps one half.

    >>> choose_thresholds([[0], [0], [1], [1]], [[0.1], [0.3], [0.4], [0.8]])
    array([0.35])

    Args:
        targets: 0, 1 and NaN for unknown (N, C) for multi-label data; 0 and 1 (N,) for two classes.
        probabilities: (N, C), or (N,) for the second of two classes.
        rule: "youden" for the largest sensitivity + specificity − 1, "f1" for the largest F1, or
            the sensitivity to reach, as 0.9, with the highest specificity.

    Returns:
        A threshold for each class, (C,).

    Raises:
        ValueError: Shapes do not fit, or there are more than two classes that exclude each other.
    """
    truth, chance = np.asarray(targets), np.asarray(probabilities, dtype=np.float64)
    if not isinstance(rule, str) and not 0 < rule <= 1:
        raise ValueError(f"the sensitivity to reach is {rule}; it must be above 0 and at most 1")
    if truth.ndim == 1:
        second = chance if chance.ndim == 1 else chance[:, -1]
        if (chance.ndim == 2 and chance.shape[1] != 2) or not np.isin(truth, (0, 1)).all():
            raise ValueError("thresholds are for multi-label data and for two classes, 0 and 1")
        threshold = _choose(truth == 1, second, rule)
        return np.array([1 - threshold, threshold])
    if truth.shape != chance.shape:
        raise ValueError(f"targets have shape {truth.shape} and probabilities {chance.shape}")
    columns = zip(truth.T.astype(np.float64), chance.T, strict=True)
    return np.array([_choose(t[~np.isnan(t)] == 1, p[~np.isnan(t)], rule) for t, p in columns])


def _choose(truth: npt.NDArray[np.bool_], chance: FloatArray, rule: ThresholdRule) -> float:
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return HALF
    values, place = np.unique(-chance, return_inverse=True)
    values = -values  # falling; with the first k of them as positive:
    hits = np.concatenate([[0], np.cumsum(np.bincount(place, truth, len(values)))])
    called = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(values)))])
    if rule == "youden":
        best = int(np.argmax(hits / positives - (called - hits) / negatives))
    elif rule == "f1":
        best = int(np.argmax(2 * hits / (positives + called)))
    else:
        # Nine of ten are a sensitivity of 0.9, however 0.9 is rounded.
        best = int(np.argmax(hits >= math.ceil(rule * positives - 1e-9)))
    return _between(values, best)


def _between(values: FloatArray, number: int) -> float:
    """Return a threshold with exactly `number` of these falling values above it."""
    if number == 0:
        return float(values[0])
    if number == len(values):
        return float(values[-1] / 2 if values[-1] > 0 else np.nextafter(values[-1], -1.0))
    middle = (values[number - 1] + values[number]) / 2
    return float(middle if middle < values[number - 1] else values[number])


def logit_shift(counts: LabelCounts, task: Task, strength: float = 1.0) -> FloatArray:
    """Return what post-hoc logit adjustment (Menon et al. 2021) adds to logits, (C,).

    For classes −τ·log of the class share, up to a constant; for labels −τ·log(A / B), with A
    positive and B negative cases, the same for a label as a softmax over its two cases. The
    adjusted model decides as if all classes, or both cases of a label, were equally frequent. A
    class that nobody has, or a label of one kind of case, is left as it is.

    Args:
        counts: Label counts of all clients in sum.
        task: Multi-class or multi-label.
        strength: τ, at least 0; 1 is the full correction.
    """
    margins = log_margins(counts, strength, task)
    return np.where(np.isfinite(margins), margins, 0.0)
