"""Positive Negative Balanced loss: Eq. 6 for multi-label, Eq. 8 for multi-class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fedbb.imbalance.cases import case_weights, check_smoothing, effective_number
from fedbb.imbalance.classes import class_factors
from fedbb.losses.counting import TaskName, Values, complete_counts, count_targets
from fedbb.losses.explain import ClassRow, Explanation
from fedbb.losses.functional import (
    Reduction,
    check_classes,
    check_reduction,
    multiclass_entries,
    multilabel_entries,
    reduce,
)
from fedbb.records import FloatArray, LabelCounts, Task

ClassFactor = Literal["alpha", "effective"]

SATURATED = 1e-3
"""Where every α is this near to one half, the loss is plain cross-entropy times a constant."""


@dataclass(frozen=True)
class PNB:
    """Hyper-parameters of the PNB loss.

    `mu` multiplies the loss, hence the learning rate; "unit" makes the mean weight over a client's
    counts one. `class_factor` is the factor between classes: the paper's second α⁺, or the inverse
    effective number. α is kept within [alpha_min, 1 − alpha_min].
    """

    beta: float = 0.9999
    tau: float = 1.0
    mu: float | Literal["unit"] = 4.0
    class_factor: ClassFactor = "alpha"
    alpha_min: float = 0.0

    def __post_init__(self) -> None:
        check_smoothing(self.beta, self.tau)
        if self.mu != "unit" and not (
            isinstance(self.mu, int | float) and 0.0 < self.mu < float("inf")
        ):
            raise ValueError(f'mu must be a finite number above 0 or "unit", not {self.mu!r}')
        if self.class_factor not in get_args(ClassFactor):
            allowed = ", ".join(get_args(ClassFactor))
            raise ValueError(f"class_factor must be one of {allowed}, not {self.class_factor!r}")
        if not 0.0 <= self.alpha_min <= 0.5:
            raise ValueError(f"alpha_min must be in [0, 0.5], not {self.alpha_min}")

    def supports(self, task: Task) -> bool:
        """Suit both tasks."""
        return True

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss for a client with these counts."""
        return _from_spec(self, counts, task, "mean")

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the mean factor on the cases of these counts, μ included."""
        return weigh(self, counts, task).mean

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Tell of a client that learns nothing, and of a β that re-weights nothing."""
        weights = weigh(self, counts, task)
        if weights.mean == 0:
            return [
                "every class has one kind of case only, so PNB gives all weight 0 "
                "and the client learns nothing"
            ]
        if self.beta == 0:
            return []
        uneven = (counts.positive > 0) & (counts.positive != counts.negative)
        if uneven.any() and np.all(np.abs(weights.alpha_positive[uneven] - 0.5) < SATURATED):
            return [f"β = {self.beta:g} saturates: every α is one half, so PNB re-weights nothing"]
        return []


@dataclass(frozen=True, eq=False)
class Weights:
    """α of each class, and what a positive and a negative case is multiplied with, μ included."""

    alpha_positive: FloatArray
    alpha_negative: FloatArray
    positive: FloatArray
    negative: FloatArray
    mean: float


def weigh(spec: PNB, counts: LabelCounts, task: Task) -> Weights:
    """Return the weights of Eq. 6 or 8 for these counts, in float64."""
    alpha, _ = case_weights(counts.positive, counts.negative, beta=spec.beta, tau=spec.tau)
    alpha = np.clip(alpha, spec.alpha_min, 1.0 - spec.alpha_min)
    factor = alpha
    if spec.class_factor == "effective":
        factor = class_factors(counts.positive, beta=spec.beta, tau=spec.tau)
    if task is Task.MULTICLASS:
        # Softmax scores the true class alone, so Eq. 8 has one factor and no negative cases.
        positive, negative = factor, np.zeros_like(factor)
        cases = counts.positive.sum()
    else:
        positive, negative = factor * alpha, factor * (1.0 - alpha)
        cases = counts.positive.sum() + counts.negative.sum()
    total = positive @ counts.positive + negative @ counts.negative
    mean = float(total / cases) if cases > 0 else 1.0
    mu = _unit(mean) if spec.mu == "unit" else float(spec.mu)
    return Weights(alpha, 1.0 - alpha, mu * positive, mu * negative, mu * mean)


def _unit(mean: float) -> float:
    """The factor that makes the mean one; cases that all weigh nothing cannot be scaled so."""
    return 1.0 / mean if mean > 0 else 1.0


class PNBLoss(nn.Module):
    """Positive Negative Balanced loss, a drop-in for CE (multi-class) and BCE (multi-label).

    >>> loss = PNBLoss([900, 90, 10])
    >>> loss(torch.zeros(2, 3), torch.tensor([0, 2])).item()  # doctest: +ELLIPSIS
    0.600...

    Args:
        positives: cases of each class in the training data, (C,).
        negatives: cases against it; needed for multi-label data unless `samples` is given.
        samples: number of training samples, from which the negatives follow.
        task: "multiclass" (targets are class numbers) or "multilabel" (targets (N, C) of 0, 1 and
            NaN for an unknown label, which then counts nowhere).
        beta: smoothing of Eq. 3, in [0, 1): 0 re-weights nothing, towards 1 is inverse frequency.
        tau: temperature that divides the counts.
        mu: factor on the loss; "unit" makes the mean weight over these counts one.
        class_factor: "alpha" as in the paper, or "effective" for the inverse effective number.
        reduction: "mean" divides by the batch (and the classes), never by the sum of weights.
        alpha_min: keeps α within [alpha_min, 1 − alpha_min].
    """

    alpha_positive: Tensor
    alpha_negative: Tensor
    positive_weight: Tensor
    negative_weight: Tensor

    def __init__(
        self,
        positives: Values,
        negatives: Values | None = None,
        *,
        samples: int | None = None,
        task: TaskName = Task.MULTICLASS,
        beta: float = 0.9999,
        tau: float = 1.0,
        mu: float | Literal["unit"] = 1.0,
        class_factor: ClassFactor = "alpha",
        reduction: Reduction = "mean",
        alpha_min: float = 0.0,
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        self.task = Task(task)
        self.spec = PNB(beta, tau, mu, class_factor, alpha_min)
        self.counts = complete_counts(positives, negatives, samples, self.task)
        self.reduction: Reduction = reduction
        weights = weigh(self.spec, self.counts, self.task)
        self._register("alpha_positive", weights.alpha_positive)
        self._register("alpha_negative", weights.alpha_negative)
        self._register("positive_weight", weights.positive)
        self._register("negative_weight", weights.negative)

    @classmethod
    def from_targets(
        cls,
        targets: Values,
        *,
        task: TaskName = Task.MULTICLASS,
        classes: int | None = None,
        **options: Any,
    ) -> PNBLoss:
        """Count a training set's targets and return the loss for them.

        `classes` is needed where the last classes may be absent from multi-class targets; `options`
        are those of the constructor. Unknown labels, NaN or −100, count nowhere.
        """
        counts = count_targets(targets, task, classes)
        return cls(counts.positive, counts.negative, task=task, **options)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Score logits (N, C) against targets, (N,) or (N, C)."""
        check_classes(logits, self.alpha_positive.shape[0])
        if self.task is Task.MULTICLASS:
            entries = multiclass_entries(logits, targets, self.positive_weight)
        else:
            entries = multilabel_entries(
                logits, targets, self.positive_weight, self.negative_weight
            )
        return reduce(entries, targets, self.reduction)

    def explain(self, names: list[str] | tuple[str, ...] | None = None) -> Explanation:
        """Return the way from counts to multipliers, a row for each class; prints as a table."""
        counts, spec = self.counts, self.spec
        names = names or [str(number) for number in range(len(counts.positive))]
        if len(names) != len(counts.positive):
            raise ValueError(f"{len(names)} names do not fit {len(counts.positive)} classes")
        weights = weigh(spec, counts, self.task)
        columns = (
            names,
            counts.positive,
            counts.negative,
            effective_number(counts.positive, spec.beta, spec.tau),
            effective_number(counts.negative, spec.beta, spec.tau),
            weights.alpha_positive,
            weights.alpha_negative,
            weights.positive,
            weights.negative,
        )
        rows = zip(*columns, strict=True)
        return Explanation(tuple(ClassRow(row[0], *map(float, row[1:])) for row in rows))

    def extra_repr(self) -> str:
        """Name the task and hyper-parameters in the module's printed form."""
        return f"task={self.task.value}, {self.spec}, reduction={self.reduction}"

    def _register(self, name: str, values: FloatArray) -> None:
        self.register_buffer(name, torch.from_numpy(values).to(torch.get_default_dtype()))


def _from_spec(spec: PNB, counts: LabelCounts, task: Task, reduction: Reduction) -> PNBLoss:
    return PNBLoss(
        counts.positive,
        counts.negative,
        task=task,
        beta=spec.beta,
        tau=spec.tau,
        mu=spec.mu,
        class_factor=spec.class_factor,
        alpha_min=spec.alpha_min,
        reduction=reduction,
    )
