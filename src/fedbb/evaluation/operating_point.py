"""From a model's outputs to decisions: thresholds of classes, and adjustment by class shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedbb.losses.logit_adjusted import log_margins
from fedbb.records import FloatArray, IntArray, LabelCounts, Task

ThresholdRule = Literal["youden", "f1"] | float
"""How a threshold is chosen: by name, or a number for the sensitivity that it must reach."""

BELOW_ALL = -1e-300
"""Below every probability. Smaller ones vanish where a thread flushes denormal numbers to zero."""

HALF = 0.5

ODDS: FloatArray = np.linspace(-16.0, 16.0, 1601)
"""Log-odds between which cases are counted: probabilities from 1e-7 to 1 − 1e-7."""

_NEVER = 1e4
"""Added to a logit, or subtracted from it, where a threshold is passed by all or by none."""


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
    return _between(values, _best(hits, called, rule))


def _best(hits: npt.NDArray[Any], called: npt.NDArray[Any], rule: ThresholdRule) -> int:
    """Return which of several falling thresholds is best, the first of equally good ones.

    Args:
        hits: positive cases above each threshold; all of them above the last.
        called: cases above each threshold; all of them above the last.
        rule: as in `choose_thresholds`.
    """
    positives, negatives = hits[-1], called[-1] - hits[-1]
    if rule == "youden":
        return int(np.argmax(hits / positives - (called - hits) / negatives))
    if rule == "f1":
        return int(np.argmax(2 * hits / (positives + called)))
    # Nine of ten are a sensitivity of 0.9, however 0.9 is rounded.
    return int(np.argmax(hits >= math.ceil(rule * positives - 1e-9)))


def count_by_odds(logits: FloatArray, labels: npt.NDArray[Any], task: Task) -> IntArray:
    """Return the cases of each class by their log-odds, from which thresholds can be chosen.

    Counts of several sites can be added: thresholds of all validation data follow from the sum.

    Args:
        logits: (N, C); two classes if they exclude each other.
        labels: class numbers (N,), or labels (N, C) of 0, 1 and NaN.
        task: multi-class or multi-label.

    Returns:
        Negative and positive cases (2, C, len(ODDS) + 1); of two classes only the second counts.
        Entry i is of log-odds above ODDS[i − 1] and up to ODDS[i].
    """
    if task is Task.MULTICLASS:
        logits, labels = logits[:, 1:] - logits[:, :1], (labels == 1)[:, None].astype(np.float64)
    places = np.searchsorted(ODDS, logits)
    held = [
        [np.bincount(place[label == kind], minlength=len(ODDS) + 1) for place, label in columns]
        for kind in (0, 1)
        for columns in [list(zip(places.T, labels.T, strict=True))]
    ]
    return np.array(held, dtype=np.int64)


def thresholds_of_counts(counts: IntArray, task: Task, rule: ThresholdRule) -> FloatArray:
    """Return the thresholds (C,) that `choose_thresholds` finds, as far as the counts tell.

    Args:
        counts: What `count_by_odds` returned, or a sum of it over sites.
        task: multi-class or multi-label.
        rule: as in `choose_thresholds`.
    """
    chosen = []
    for negative, positive in zip(*counts[:, :, ::-1], strict=True):
        hits = np.concatenate([[0], np.cumsum(positive)])
        called = hits + np.concatenate([[0], np.cumsum(negative)])
        if not 0 < hits[-1] < called[-1]:
            chosen.append(HALF)
            continue
        same = np.flatnonzero(called == called[_best(hits, called, rule)])
        chosen.append(_between_counts(same, len(hits) - 1))
    return np.array([1 - chosen[0], *chosen] if task is Task.MULTICLASS else chosen)


def _between_counts(same: IntArray, entries: int) -> float:
    """Return a threshold above which are the cases of as many last entries as `same` says.

    Args:
        same: rising numbers of entries that all hold the same cases.
        entries: number of all entries.
    """
    if same[0] == 0:  # no case is above it: as close to the highest one as the counts tell
        return _lower_end(entries - int(same[-1]))
    if same[-1] == entries:
        return _lower_end(entries - int(same[0])) / 2
    return _lower_end(entries - int(same[len(same) // 2]))


def _lower_end(place: int) -> float:
    """Return the probability that all cases of an entry are above."""
    if place == 0:
        return BELOW_ALL
    return 1.0 if place > len(ODDS) else float(1 / (1 + np.exp(-ODDS[place - 1])))


def decision_shift(
    task: Task, thresholds: Sequence[float] | None, adjustment: Sequence[float] | None, classes: int
) -> FloatArray:
    """Return what to add to logits, (C,), so that plain decisions are those of an operating point.

    Plain decisions are the largest of two classes, or a positive logit of a label. The order of
    cases stays what the adjusted logits make it.

    Args:
        task: multi-class or multi-label.
        thresholds: probability above which each class is predicted; None for one half.
        adjustment: what `logit_shift` returned; None for nothing.
        classes: number of classes.
    """
    shift = np.zeros(classes) if adjustment is None else np.array(adjustment, dtype=np.float64)
    if thresholds is None:
        return shift
    limits = np.array(thresholds, dtype=np.float64)
    inside = np.clip(limits, 1e-300, 1 - 1e-16)
    odds = np.log(inside) - np.log1p(-inside)
    odds = np.where(limits <= 0, -_NEVER, np.where(limits >= 1, _NEVER, odds))
    if task is Task.MULTICLASS:  # the threshold of the second class decides
        odds[0] = 0.0
    return np.asarray(shift - odds)


def _between(values: FloatArray, number: int) -> float:
    """Return a threshold with exactly `number` of these falling values above it."""
    if number == 0:
        return float(values[0])
    if number == len(values):
        return float(values[-1] / 2) if values[-1] > 0 else BELOW_ALL
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
