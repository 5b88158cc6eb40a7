"""Class weights as a plain tensor, for a loss of another library."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from fedbb.imbalance import Values, check_smoothing, class_factors
from fedbb.losses.drop_in import IGNORED, Classes, complete_counts, count_targets
from fedbb.losses.pnb import PNB, weigh
from fedbb.records import FloatArray, LabelCounts, Task

Rule = Literal["effective", "inverse", "pnb"]


def class_weights(
    y: Values | None = None,
    rule: Rule = "effective",
    *,
    counts: Values | None = None,
    classes: Classes = None,
    beta: float = 0.9999,
    tau: float = 1.0,
    ignore_index: int = IGNORED,
) -> Tensor:
    """Return a weight for each class of multi-class data, for `nn.CrossEntropyLoss(weight=...)`.

    Their mean over the training samples, Σ n·w / Σ n, is one, so that a loss which averages over
    the batch keeps its scale, and a learning rate its meaning. (torch's own mean divides by the
    weights of the batch and so is the same for any scale.)

    >>> class_weights(["cat", "cat", "cat", "dog"], rule="inverse")
    tensor([0.6667, 2.0000])

    Args:
        y: class numbers or names of the training data (N,), or masks of class numbers (N, H, W, …):
            a list, an array, a tensor, or a column of pandas.
        rule: "effective" is 1 / E(n) of the class-balanced loss, "inverse" is 1 / n, "pnb" is α⁺ of
            `PNBLoss`.
        counts: the cases of each class (C,), instead of `y`.
        classes: number of classes or their names, where some may be absent from `y`; the order of
            the names is that of the weights, sorted by default.
        beta: smoothing of "effective" and "pnb", in [0, 1).
        tau: temperature that divides the counts in these two.
        ignore_index: class number in `y` that counts nowhere.

    Returns:
        Weights (C,) in float32. An absent class weighs nothing with "effective" and "inverse".

    Raises:
        ValueError: neither or both of `y` and `counts`, an unknown rule, values that cannot be
            counted, or no sample of positive weight.
    """
    if (y is None) == (counts is None):
        raise ValueError("class_weights takes either targets y or the counts of the classes")
    if rule not in get_args(Rule):
        raise ValueError(f"rule must be one of {', '.join(get_args(Rule))}, not {rule!r}")
    check_smoothing(beta, tau)
    if y is not None:
        counted, _ = count_targets(y, Task.MULTICLASS, classes, ignore_index)
    elif counts is not None:
        counted = complete_counts(counts, None, None, Task.MULTICLASS)
    weight = _weigh(rule, counted, beta, tau)
    total = float(weight @ counted.positive)
    if not total > 0:
        raise ValueError(
            "no sample has a weight; is there none, or are all of one class (rule pnb)?"
        )
    return torch.from_numpy(weight * (counted.positive.sum() / total)).float()


def _weigh(rule: Rule, counts: LabelCounts, beta: float, tau: float) -> FloatArray:
    """Return the weights of the classes, up to a constant."""
    cases = counts.positive
    if rule == "pnb":
        return weigh(PNB(beta=beta, tau=tau, mu="unit"), counts, Task.MULTICLASS).positive
    if rule == "effective":
        return class_factors(cases, beta=beta, tau=tau)
    return np.divide(1.0, cases, out=np.zeros_like(cases), where=cases > 0)
