"""Class-balanced loss (Cui et al. 2019): every class weighted by its inverse effective number."""

from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fedbb.imbalance import Values, check_smoothing, class_factors
from fedbb.losses.base import Loss
from fedbb.losses.drop_in import (
    IGNORED,
    Classes,
    CountedLoss,
    Reduction,
    TaskName,
    class_probabilities,
    complete_counts,
    multiclass_entries,
    of_targets,
    per_class,
)
from fedbb.losses.focal import check_focus, focal_multilabel
from fedbb.records import LabelCounts, Task

Form = Literal["softmax", "sigmoid", "focal"]

SATURATED = 1e-3
"""If all weights are this near to each other, the loss is the plain one times a constant."""


@dataclass(frozen=True)
class ClassBalanced(Loss):
    """Hyper-parameters of the class-balanced loss.

    Args:
        beta: smoothing, in [0, 1).
        form: what is weighted: softmax cross-entropy, one sigmoid for each class, or those sigmoids
            with the focal factor. Multi-label data has sigmoids in any case, so "softmax" and
            "sigmoid" are the same there.
        gamma: exponent of the focal factor.

    Raises:
        ValueError: a value outside of its range.
    """

    beta: float = 0.9999
    form: Form = "softmax"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_smoothing(self.beta, tau=1.0)
        check_focus(self.gamma)
        if self.form not in get_args(Form):
            allowed = ", ".join(get_args(Form))
            raise ValueError(f"form must be one of {allowed}, not {self.form!r}")

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss for a client with these counts."""
        return CBLoss(
            counts.positive,
            counts.negative,
            task=task,
            beta=self.beta,
            form=self.form,
            gamma=self.gamma,
        )

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the mean weight of the cases of these counts; a focal factor is left out of it."""
        multiclass = task is Task.MULTICLASS
        cases = counts.positive if multiclass else counts.positive + counts.negative
        weight = class_factors(counts.positive, beta=self.beta)
        return float(weight @ cases / cases.sum()) if cases.sum() > 0 else 1.0

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Report a client that learns nothing, and a β that re-weights nothing."""
        held = counts.positive[counts.positive > 0]
        if held.size == 0:
            return ["it holds no positive case, every weight is 0 and it learns nothing"]
        weight = class_factors(held, beta=self.beta)
        if len(np.unique(held)) > 1 and np.all(np.abs(weight - 1.0) < SATURATED):
            return [f"β = {self.beta:g} saturates: all classes weigh the same"]
        return []


class CBLoss(CountedLoss):
    """Class-balanced loss, a drop-in for CE (multi-class) and BCE (multi-label).

    The weights sum to the number of classes; an absent class weighs nothing. Multi-class samples
    are weighted by their class, multi-label entries by theirs, positive or negative.

    >>> CBLoss([900, 90, 10]).weight
    tensor([0.0310, 0.2980, 2.6710])

    Args:
        positives: cases of each class in the training data, (C,).
        negatives: cases against it; needed for multi-label data unless `samples` is given.
        samples: number of training samples, from which the negatives follow.
        task: "multiclass" or "multilabel"; see `forward` for the targets of each.
        form: "softmax", "sigmoid" or "focal"; the latter two sum over the classes of a sample.
            Multi-label data has sigmoids in any case, so the first two are the same there.
        beta: smoothing, in [0, 1): 0 re-weights nothing, towards 1 is inverse frequency.
        gamma: exponent of the focal form.
        reduction: "mean" divides by the batch (for multi-label data, by the known entries), never
            by the sum of weights.
        label_smoothing: how much of each target is spread over the classes, from 0 to 1.
        ignore_index: marks an unknown label in targets of an integer type.

    Raises:
        ValueError: counts or hyper-parameters outside of their range.
    """

    weight: Tensor

    def __init__(
        self,
        positives: Values,
        negatives: Values | None = None,
        *,
        samples: int | None = None,
        task: TaskName = Task.MULTICLASS,
        form: Form = "softmax",
        beta: float = 0.9999,
        gamma: float = 1.0,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> None:
        spec = ClassBalanced(beta, form, gamma)
        counts = complete_counts(positives, negatives, samples, Task(task))
        super().__init__(spec, counts, task, reduction, label_smoothing, ignore_index)
        self.form: str = form
        self.gamma = gamma if form == "focal" else 0.0
        self._keep("weight", class_factors(counts.positive, beta=beta))

    @classmethod
    def from_targets(
        cls,
        targets: Values,
        *,
        task: TaskName = Task.MULTICLASS,
        classes: Classes = None,
        form: Form = "softmax",
        beta: float = 0.9999,
        gamma: float = 1.0,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> Self:
        """Count a training set's targets and return the loss for them.

        Args:
            targets: class numbers, names, masks or labels, as `PNBLoss.from_targets` takes them.
            task: "multiclass" or "multilabel".
            classes: number of classes or their names, needed where some may be absent.
            form: see the constructor, as for the arguments that follow.
            beta: smoothing.
            gamma: exponent of the focal form.
            reduction: "mean", "sum" or "none".
            label_smoothing: see the class.
            ignore_index: see the class; such targets count nowhere.

        Returns:
            The loss; `class_names` has the names of text classes, sorted unless given.

        Raises:
            ValueError: targets that cannot be counted.
        """
        return of_targets(
            cls,
            targets,
            task,
            classes,
            ignore_index,
            form=form,
            beta=beta,
            gamma=gamma,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the weighted loss of each sample or label."""
        smoothing, weight = self.label_smoothing, self.weight
        if self.multilabel:
            return focal_multilabel(logits, target, self.gamma, weight, weight, smoothing)
        if self.form == "softmax":
            return multiclass_entries(logits, target, weight, self.ignore_index, smoothing)
        even = torch.ones_like(weight) / logits.shape[1]
        truth = class_probabilities(logits, target, self.ignore_index, smoothing, even)
        return one_against_all(logits, truth, self.gamma, weight)


def one_against_all(logits: Tensor, truth: Tensor, gamma: float, weight: Tensor) -> Tensor:
    """Return w·Σ_c of the focal BCE of "is it class c?" for each sample (N, …), w = Σ_c q_c·w_c.

    `truth` is q, the probability of each class, NaN for an unknown sample.
    """
    weighted = truth.nan_to_num(nan=0.0) * per_class(weight, logits)
    of_sample = weighted.sum(dim=1, keepdim=True)
    entries = focal_multilabel(logits, truth, gamma, of_sample, of_sample)
    return entries.sum(dim=1)
