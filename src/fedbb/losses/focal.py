"""Focal loss (Lin et al. 2017): (1 − p)^γ times the plain loss; easy examples count less."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbb.losses.base import Loss
from fedbb.losses.counted import TaskName
from fedbb.losses.functional import (
    Reduction,
    check_reduction,
    multiclass_entries,
    multilabel_entries,
    one_hot,
    reduce,
    widen,
)
from fedbb.records import LabelCounts, Task


@dataclass(frozen=True)
class Focal(Loss):
    """Hyper-parameters of the focal loss.

    Args:
        gamma: how fast easy examples lose weight; 0 is the plain loss.
        alpha: weight of positive cases, 1 − α that of negative ones; None for none. Softmax scores
            the true class alone, so α is for multi-label data only.

    Raises:
        ValueError: a value outside of its range.
    """

    gamma: float = 2.0
    alpha: float | None = None

    def __post_init__(self) -> None:
        check_focus(self.gamma)
        if self.alpha is not None and not 0.0 < self.alpha < 1.0:
            raise ValueError(f"alpha must be None or between 0 and 1, not {self.alpha}")

    def supports(self, task: Task) -> bool:
        """Support both tasks; with α, multi-label only."""
        return self.alpha is None or task is Task.MULTILABEL

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss, which does not depend on a client's counts."""
        return FocalLoss(gamma=self.gamma, alpha=self.alpha, task=task)

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return one, or the mean of α and 1 − α over the cases; (1 − p)^γ is left out of it."""
        positive, negative = counts.positive.sum(), counts.negative.sum()
        if self.alpha is None or positive + negative == 0:
            return 1.0
        weighted = self.alpha * positive + (1.0 - self.alpha) * negative
        return float(weighted / (positive + negative))


class FocalLoss(nn.Module):
    """Focal loss on logits, a drop-in for CE (multi-class) and BCE (multi-label).

    >>> loss = FocalLoss(gamma=2.0)
    >>> loss(torch.zeros(1, 2), torch.tensor([0])).item()  # ln 2 / 4  # doctest: +ELLIPSIS
    0.1732...

    Args:
        gamma: how fast easy examples lose weight, at least 0; 0 is the plain loss.
        alpha: weight of positive cases, 1 − α that of negative ones; multi-label only.
        task: "multiclass" (targets are class numbers) or "multilabel" (targets (N, C) of 0, 1 and
            NaN for an unknown label, which then counts nowhere).
        reduction: "mean" divides by the number of known labels.

    Raises:
        ValueError: a value outside of its range, or `alpha` for a multi-class task.
    """

    def __init__(
        self,
        *,
        gamma: float = 2.0,
        alpha: float | None = None,
        task: TaskName = Task.MULTICLASS,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        self.task = Task(task)
        self.spec = Focal(gamma, alpha)
        if not self.spec.supports(self.task):
            raise ValueError(
                "alpha weighs positive against negative cases, and softmax has no negative ones; "
                "it is for multi-label data"
            )
        self.reduction: Reduction = reduction

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Score logits (N, C) against targets, (N,) or (N, C)."""
        gamma, alpha = self.spec.gamma, self.spec.alpha
        if self.task is Task.MULTICLASS:
            entries = focal_multiclass(logits, targets, gamma)
        else:
            sides = (1.0, 1.0) if alpha is None else (alpha, 1.0 - alpha)
            positive, negative = (torch.full((), side, device=logits.device) for side in sides)
            entries = focal_multilabel(logits, targets, gamma, positive, negative)
        return reduce(entries, targets, self.reduction)

    def extra_repr(self) -> str:
        """Name the task and hyper-parameters in the module's printed form."""
        return f"task={self.task.value}, {self.spec}, reduction={self.reduction}"


def focal_multiclass(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """Return (1 − p[y])^γ·(−log p[y]) of each sample (N,), p the softmax."""
    entries = multiclass_entries(logits, targets, weight=None)
    shares = F.log_softmax(widen(logits), dim=1)
    truth = one_hot(targets, logits.shape[1])
    # 1 − p summed over the other classes: a difference rounds to 0, where x^γ may have no slope.
    rest = shares.masked_fill(truth, torch.finfo(shares.dtype).min).logsumexp(dim=1)
    return (gamma * rest).exp() * entries


def focal_multilabel(
    logits: Tensor, targets: Tensor, gamma: float, positive: Tensor, negative: Tensor
) -> Tensor:
    """Return (1 − p_t)^γ times the weighted BCE of each entry (N, C); p_t is that of the truth."""
    entries = multilabel_entries(logits, targets, positive, negative)
    logits = widen(logits)
    truth = targets.to(logits).nan_to_num(nan=0.0)
    rest = F.logsigmoid(logits) - truth * logits  # log(1 − p_t) = −y·z − softplus(−z)
    return (gamma * rest).exp() * entries


def check_focus(gamma: float) -> None:
    """Refuse a γ that would make right answers count more, or everything nothing."""
    if not 0.0 <= gamma < float("inf"):
        raise ValueError(f"gamma must be a finite number of at least 0, not {gamma}")
