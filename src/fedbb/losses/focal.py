"""Focal loss (Lin et al. 2017): (1 − p)^γ times the plain loss; easy examples count less."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbb.losses.base import Loss
from fedbb.losses.drop_in import (
    IGNORED,
    DropInLoss,
    Reduction,
    TaskName,
    class_probabilities,
    multiclass_entries,
    multilabel_entries,
    one_hot,
    smooth_labels,
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


class FocalLoss(DropInLoss):
    """Focal loss on logits, a drop-in for CE (multi-class) and BCE (multi-label).

    >>> loss = FocalLoss(gamma=2.0)
    >>> loss(torch.zeros(1, 2), torch.tensor([0])).item()  # ln 2 / 4  # doctest: +ELLIPSIS
    0.1732...

    Args:
        gamma: how fast easy examples lose weight, at least 0; 0 is the plain loss.
        alpha: weight of positive cases, 1 − α that of negative ones; multi-label only.
        task: "multiclass" or "multilabel"; see `forward` for the targets of each.
        reduction: "mean" divides by the number of known labels.
        label_smoothing: how much of each target is spread over the classes, from 0 to 1.
        ignore_index: marks an unknown label in targets of an integer type.

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
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> None:
        spec = Focal(gamma, alpha)
        super().__init__(spec, task, 0, reduction, label_smoothing, ignore_index)
        if not spec.supports(self.task):
            raise ValueError(
                "alpha weighs positive against negative cases, and softmax has no negative ones; "
                "it is for multi-label data"
            )
        self.gamma = gamma
        self.positive, self.negative = (1.0, 1.0) if alpha is None else (alpha, 1.0 - alpha)

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the focal loss of each sample or label."""
        gamma, smoothing = self.gamma, self.label_smoothing
        if not self.multilabel:
            return focal_multiclass(logits, target, gamma, self.ignore_index, smoothing)
        positive = torch.full((), self.positive, device=logits.device)
        negative = torch.full((), self.negative, device=logits.device)
        return focal_multilabel(logits, target, gamma, positive, negative, smoothing)


def focal_multiclass(
    logits: Tensor, target: Tensor, gamma: float, ignore_index: int, label_smoothing: float
) -> Tensor:
    """Return Σ_c q_c·(1 − p_c)^γ·(−log p_c) of each sample (N, …), p the softmax."""
    shares = F.log_softmax(widen(logits), dim=1)
    if target.is_floating_point() or label_smoothing > 0.0:
        even = torch.ones((), device=logits.device) / logits.shape[1]
        q = class_probabilities(shares, target, ignore_index, label_smoothing, even)
        entries = (gamma * log_complement(shares)).exp() * -shares
        return (q.nan_to_num(nan=0.0) * entries).sum(dim=1)
    rest = log_rest(shares, one_hot(target, logits))
    return (gamma * rest).exp() * multiclass_entries(logits, target, None, ignore_index)


def log_rest(shares: Tensor, excluded: Tensor, lowest: float = -1e30) -> Tensor:
    """Return the logarithm of what all classes but the excluded one have together."""
    # 1 − p as a sum over the others: a difference rounds to 0, where x^γ may have no slope.
    return shares.masked_fill(excluded, lowest).logsumexp(dim=1)


def log_complement(shares: Tensor) -> Tensor:
    """Return log(1 − p) of every class; log p is given."""
    # The largest p alone may round to 1; the others are at most one half.
    largest = one_hot(shares.argmax(dim=1), shares)
    others = torch.log1p(-shares.exp().masked_fill(largest, 0.0))
    return torch.where(largest, log_rest(shares, largest).unsqueeze(1), others)


def focal_multilabel(
    logits: Tensor,
    target: Tensor,
    gamma: float,
    positive: Tensor,
    negative: Tensor,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return (1 − p_t)^γ times the weighted BCE of each entry (N, C, …); p_t is that of the truth.

    The factor of a soft label is the geometric mean of those of its two cases, y to 1 − y.
    """
    logits = widen(logits)
    target = target.to(logits)
    if label_smoothing > 0.0:
        target = smooth_labels(target, label_smoothing)
    entries = multilabel_entries(logits, target, positive, negative)
    truth = target.nan_to_num(nan=0.0)
    rest = F.logsigmoid(logits) - truth * logits  # log(1 − p_t) = −y·z − softplus(−z)
    return (gamma * rest).exp() * entries


def check_focus(gamma: float) -> None:
    """Refuse a γ that would make right answers count more, or everything nothing."""
    if not 0.0 <= gamma < float("inf"):
        raise ValueError(f"gamma must be a finite number of at least 0, not {gamma}")
