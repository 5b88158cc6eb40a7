"""Logit adjustment (Menon et al. 2021): cross-entropy on logits plus τ times the log class prior.

At τ = 1 it is the balanced softmax (Ren et al. 2020). Both papers are on multi-class data. For
multi-label data each label is taken as a softmax over its two cases, with the prior of those.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from fedbb.imbalance import Values
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
from fedbb.losses.logit_calibrated import (
    ALONE,
    calibrate,
    calibrate_labels,
    is_alone,
    smooth_mixed,
    smooth_present,
)
from fedbb.records import FloatArray, LabelCounts, Task


@dataclass(frozen=True)
class LogitAdjusted(Loss):
    """Hyper-parameters of logit adjustment.

    Args:
        tau: factor on the logarithm of the prior, at least 0; 1 is the balanced softmax.

    Raises:
        ValueError: a value outside of its range.
    """

    tau: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.tau < float("inf"):
            raise ValueError(f"tau must be a finite number of at least 0, not {self.tau}")

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss for a client with these counts."""
        return LogitAdjustedLoss(counts.positive, counts.negative, task=task, tau=self.tau)

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return one, or zero on a client that has nothing to compare."""
        return 0.0 if is_alone(counts.positive, counts.negative, task) else 1.0

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Report a client that learns nothing."""
        return [ALONE[task]] if is_alone(counts.positive, counts.negative, task) else []


class LogitAdjustedLoss(CountedLoss):
    """Cross-entropy on logits adjusted by the class prior, a drop-in for CE and BCE.

    Classes without a sample drop out: no probability, no gradient; so do labels of one kind of
    case. Logits are adjusted for training only; predict from them as they are.

    >>> LogitAdjustedLoss([100, 10, 0]).margin
    tensor([0.0000, 2.3026,    inf])

    Args:
        positives: cases of each class in the training data, (C,).
        negatives: cases against it; needed for multi-label data unless `samples` is given.
        samples: number of training samples, from which the negatives follow.
        task: "multiclass" or "multilabel"; see `forward` for the targets of each.
        tau: factor on the logarithm of the prior, at least 0; 1 is the balanced softmax.
        reduction: "mean" divides by the number of known labels.
        label_smoothing: how much of each target is spread over the classes, from 0 to 1; classes
            that drop out get nothing of it.
        ignore_index: marks an unknown label in targets of an integer type.

    Raises:
        ValueError: counts or options outside of their range.
    """

    margin: Tensor

    def __init__(
        self,
        positives: Values,
        negatives: Values | None = None,
        *,
        samples: int | None = None,
        task: TaskName = Task.MULTICLASS,
        tau: float = 1.0,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> None:
        spec = LogitAdjusted(tau)
        counts = complete_counts(positives, negatives, samples, Task(task))
        super().__init__(spec, counts, task, reduction, label_smoothing, ignore_index)
        self._keep("margin", log_margins(counts, tau, self.task))

    @classmethod
    def from_targets(
        cls,
        targets: Values,
        *,
        task: TaskName = Task.MULTICLASS,
        classes: Classes = None,
        tau: float = 1.0,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> Self:
        """Count a training set's targets and return the loss for them.

        Args:
            targets: class numbers, names, masks or labels, as `PNBLoss.from_targets` takes them.
            task: "multiclass" or "multilabel".
            classes: number of classes or their names, needed where some may be absent.
            tau: see the class.
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
            tau=tau,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each sample or label on adjusted logits."""
        margin, ignored, smoothing = self.margin, self.ignore_index, self.label_smoothing
        if self.multilabel:
            one = torch.ones((), device=logits.device)
            target = smooth_mixed(logits, target, margin, smoothing)
            return multilabel_entries(calibrate_labels(logits, margin), target, one, one)
        target = smooth_present(logits, target, margin, ignored, smoothing)
        return multiclass_entries(calibrate(logits, margin), target, None, ignored)


def log_margins(counts: LabelCounts, tau: float, task: Task) -> FloatArray:
    """Return what is taken off the logits: −τ·log of the prior, up to a constant.

    For classes, τ·log(n_max / n), infinite for an absent one. For labels, τ·log(B / A), infinite
    for a label of one kind of case, with the sign that settles it as it is.
    """
    positive = counts.positive
    if task is Task.MULTILABEL:
        margin = np.where(positive > 0, -np.inf, np.inf)
        both = (positive > 0) & (counts.negative > 0)
        margin[both] = tau * np.log(counts.negative[both] / positive[both])
        return margin
    if not np.any(positive > 0):
        return np.zeros_like(positive)
    margin = np.full_like(positive, np.inf)
    margin[positive > 0] = tau * np.log(positive.max() / positive[positive > 0])
    return margin
