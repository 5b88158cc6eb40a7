"""Positive Negative Balanced loss: Eq. 6 for multi-label, Eq. 8 for multi-class."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal, Self, get_args

import numpy as np
from torch import Tensor, nn

from fedbb.imbalance import Values, case_weights, check_smoothing, class_factors, effective_number
from fedbb.losses.base import Loss
from fedbb.losses.drop_in import (
    IGNORED,
    Classes,
    CountedLoss,
    Reduction,
    TaskName,
    complete_counts,
    multiclass_entries,
    multilabel_entries,
    of_targets,
)
from fedbb.records import FloatArray, LabelCounts, Task

HEADINGS = ("class", "A", "B", "E(A)", "E(B)", "α⁺", "α⁻", "weight⁺", "weight⁻")
ClassFactor = Literal["alpha", "effective"]
Scale = float | Literal["unit"]
"""A factor on the loss, or "unit" for the one that makes the mean weight one."""

SATURATED = 1e-3
"""If every α is this near to one half, the loss is plain cross-entropy times a constant."""


@dataclass(frozen=True)
class ClassRow:
    """One class: its counts, effective numbers, α and the weights of its cases."""

    name: str
    positives: float
    negatives: float
    effective_positives: float
    effective_negatives: float
    alpha_positive: float
    alpha_negative: float
    positive_weight: float
    negative_weight: float


@dataclass(frozen=True)
class Explanation:
    """Rows by class; prints as an aligned table."""

    rows: tuple[ClassRow, ...]

    def __iter__(self) -> Iterator[ClassRow]:
        return iter(self.rows)

    def __str__(self) -> str:
        table = [HEADINGS, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(HEADINGS))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in table
        )


def _cells(row: ClassRow) -> tuple[str, ...]:
    name, *numbers = (getattr(row, field.name) for field in fields(row))
    counts, effective, weights = numbers[:2], numbers[2:4], numbers[4:]
    return (
        name,
        *(f"{count:g}" for count in counts),
        *(f"{number:.2f}" for number in effective),
        *(f"{weight:.5f}" for weight in weights),
    )


@dataclass(frozen=True)
class PNB(Loss):
    """Hyper-parameters of the PNB loss; the defaults are the paper's.

    Args:
        beta: smoothing of Eq. 3, in [0, 1).
        tau: temperature that divides the counts.
        mu: factor on the loss, hence on the learning rate; "unit" makes the mean weight over a
            client's counts one.
        class_factor: factor between classes: the paper's second α⁺, or the inverse effective
            number.
        alpha_min: α is kept within [alpha_min, 1 − alpha_min].

    Raises:
        ValueError: a value outside of its range.
    """

    beta: float = 0.9999
    tau: float = 1.0
    mu: Scale = 4.0
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

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss for a client with these counts."""
        return PNBLoss(
            counts.positive,
            counts.negative,
            task=task,
            beta=self.beta,
            tau=self.tau,
            mu=self.mu,
            class_factor=self.class_factor,
            alpha_min=self.alpha_min,
        )

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the mean factor on the cases of these counts, μ included."""
        return weigh(self, counts, task).mean

    def mean_weights(self, positive: FloatArray, negative: FloatArray, task: Task) -> FloatArray:
        """Return `mean_weight` of many clients at once."""
        _, on_positive, on_negative = _factors(self, positive, negative, task)
        total = (on_positive * positive + on_negative * negative).sum(axis=1)
        cases = _cases(positive, negative, task)
        mean = np.divide(total, cases, out=np.ones_like(total), where=cases > 0)
        if self.mu == "unit":
            return np.where(mean > 0, 1.0, 0.0)
        return np.asarray(self.mu * mean)

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Report a client that learns nothing, and a β that re-weights nothing."""
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
    """α of each class, and the factors on its positive and negative cases, μ included."""

    alpha_positive: FloatArray
    alpha_negative: FloatArray
    positive: FloatArray
    negative: FloatArray
    mean: float


def weigh(spec: PNB, counts: LabelCounts, task: Task) -> Weights:
    """Return the weights of Eq. 6 or 8 for these counts, in float64."""
    alpha, positive, negative = _factors(spec, counts.positive, counts.negative, task)
    total = positive @ counts.positive + negative @ counts.negative
    cases = _cases(counts.positive, counts.negative, task)
    mean = float(total / cases) if cases > 0 else 1.0
    mu = _unit(mean) if spec.mu == "unit" else float(spec.mu)
    return Weights(alpha, 1.0 - alpha, mu * positive, mu * negative, mu * mean)


def _factors(
    spec: PNB, positive: FloatArray, negative: FloatArray, task: Task
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return α⁺ and the factors on positive and negative cases before μ, all (…, C)."""
    alpha, _ = case_weights(positive, negative, beta=spec.beta, tau=spec.tau)
    alpha = np.clip(alpha, spec.alpha_min, 1.0 - spec.alpha_min)
    factor = alpha
    if spec.class_factor == "effective":
        factor = class_factors(positive, beta=spec.beta, tau=spec.tau)
    if task is Task.MULTICLASS:
        # Softmax scores the true class alone, so Eq. 8 has one factor and no negative cases.
        return alpha, factor, np.zeros_like(factor)
    return alpha, factor * alpha, factor * (1.0 - alpha)


def _cases(positive: FloatArray, negative: FloatArray, task: Task) -> FloatArray:
    """Return the number of cases that are scored, (…)."""
    scored = positive.sum(axis=-1)
    return np.asarray(scored if task is Task.MULTICLASS else scored + negative.sum(axis=-1))


def _unit(mean: float) -> float:
    """Return the factor that makes the mean one; cases of weight zero cannot be scaled."""
    return 1.0 / mean if mean > 0 else 1.0


class PNBLoss(CountedLoss):
    """Positive Negative Balanced loss, a drop-in for CE (multi-class) and BCE (multi-label).

    The mean weight over the training data is one unless `mu` says otherwise, so that the learning
    rate of cross-entropy keeps its meaning.

    >>> loss = PNBLoss([900, 90, 10])
    >>> loss.positive_weight
    tensor([0.5609, 4.9071, 5.3558])

    Args:
        positives: cases of each class in the training data, (C,).
        negatives: cases against it; needed for multi-label data unless `samples` is given.
        samples: number of training samples, from which the negatives follow.
        task: "multiclass" or "multilabel"; see `forward` for the targets of each.
        beta: smoothing of Eq. 3, in [0, 1): 0 re-weights nothing, towards 1 is inverse frequency.
        tau: temperature that divides the counts.
        mu: factor on the loss; "unit" makes the mean weight over these counts one. The paper's
            method takes 4.
        class_factor: "alpha" as in the paper, or "effective" for the inverse effective number.
        reduction: "mean" divides by the batch (and the classes), never by the sum of weights.
        alpha_min: keeps α within [alpha_min, 1 − alpha_min].
        label_smoothing: how much of each target is spread over the classes, from 0 to 1.
        ignore_index: marks an unknown label in targets of an integer type.

    Raises:
        ValueError: counts or hyper-parameters outside of their range.
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
        mu: Scale = "unit",
        class_factor: ClassFactor = "alpha",
        reduction: Reduction = "mean",
        alpha_min: float = 0.0,
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> None:
        spec = PNB(beta, tau, mu, class_factor, alpha_min)
        counts = complete_counts(positives, negatives, samples, Task(task))
        super().__init__(spec, counts, task, reduction, label_smoothing, ignore_index)
        weights = weigh(spec, counts, self.task)
        self._keep("alpha_positive", weights.alpha_positive)
        self._keep("alpha_negative", weights.alpha_negative)
        self._keep("positive_weight", weights.positive)
        self._keep("negative_weight", weights.negative)

    @classmethod
    def from_targets(
        cls,
        targets: Values,
        *,
        task: TaskName = Task.MULTICLASS,
        classes: Classes = None,
        beta: float = 0.9999,
        tau: float = 1.0,
        mu: Scale = "unit",
        class_factor: ClassFactor = "alpha",
        reduction: Reduction = "mean",
        alpha_min: float = 0.0,
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> Self:
        """Count a training set's targets and return the loss for them.

        >>> loss = PNBLoss.from_targets(["cat", "dog", "cat"])
        >>> loss.class_names
        ('cat', 'dog')

        Args:
            targets: class numbers or names (N,), masks of class numbers (N, H, W, …), or labels
                (N, C, …) from 0 to 1: a list, an array, a tensor, or a column of pandas. Unknown
                labels, NaN or `ignore_index`, count nowhere.
            task: "multiclass" or "multilabel".
            classes: number of classes or their names, needed where some may be absent.
            beta: see the class, as for the arguments that follow.
            tau: see the class.
            mu: see the class.
            class_factor: see the class.
            reduction: see the class.
            alpha_min: see the class.
            label_smoothing: see the class.
            ignore_index: see the class; such targets count nowhere.

        Returns:
            The loss. It takes class numbers; `class_names` has the name of each, sorted for text
            targets unless `classes` gives an order.

        Raises:
            ValueError: targets that cannot be counted, or hyper-parameters outside of their range.
        """
        return of_targets(
            cls,
            targets,
            task,
            classes,
            ignore_index,
            beta=beta,
            tau=tau,
            mu=mu,
            class_factor=class_factor,
            reduction=reduction,
            alpha_min=alpha_min,
            label_smoothing=label_smoothing,
        )

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return Eq. 8 of each sample, or Eq. 6 of each label."""
        smoothing = self.label_smoothing
        if self.multilabel:
            positive, negative = self.positive_weight, self.negative_weight
            return multilabel_entries(logits, target, positive, negative, smoothing)
        weight = self.positive_weight
        return multiclass_entries(logits, target, weight, self.ignore_index, smoothing)

    def explain(self, names: Sequence[str] | None = None) -> Explanation:
        """Return how the counts lead to the weights, a row for each class; prints as a table.

        Args:
            names: names of the classes; by default `class_names`, or their numbers.

        Raises:
            ValueError: a number of names that differs from the number of classes.
        """
        counts, spec = self.counts, self.spec
        names = names or self.class_names or [str(place) for place in range(len(counts.positive))]
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
