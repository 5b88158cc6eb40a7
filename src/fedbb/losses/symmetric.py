"""Symmetric cross-entropy (Wang et al. 2019): a loss that tolerates wrong labels; used by RHFL."""

import math
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
    smooth_labels,
    widen,
)
from fedbb.records import LabelCounts, Task

LEAST = 1e-4
"""What stands for a target of zero in its logarithm."""


@dataclass(frozen=True)
class Symmetric(Loss):
    """Hyper-parameters of the symmetric loss, α·CE + β·RCE.

    Args:
        alpha: factor on the cross-entropy.
        beta: factor on the reverse cross-entropy, −Σ p·log q with targets q of at least 1e-4.

    Raises:
        ValueError: a value below 0, or both are 0.
    """

    alpha: float = 0.1
    beta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} must be a finite number of at least 0, not {getattr(self, name)}"
                )
        if self.alpha == self.beta == 0.0:
            raise ValueError("alpha and beta are both 0, so the loss is always 0")

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss, which does not depend on a client's counts."""
        return SymmetricLoss(alpha=self.alpha, beta=self.beta, task=task)

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the size of its gradient beside that of the plain loss at even predictions."""
        classes = 2 if task is Task.MULTILABEL else max(len(counts.positive), 2)
        return self.alpha - math.log(LEAST) * self.beta / classes


class SymmetricLoss(DropInLoss):
    """Symmetric cross-entropy on logits, a drop-in for CE (multi-class) and BCE (multi-label).

    The reverse term is 9.21·(1 − p) with the probability p of the true class: it is bounded, and
    its gradient is small where p is small, so that wrong labels pull little.

    >>> loss = SymmetricLoss(alpha=0.1, beta=1.0)
    >>> loss(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0])).item()  # doctest: +ELLIPSIS
    1.4556...

    Args:
        alpha: factor on the cross-entropy.
        beta: factor on the reverse cross-entropy; 0 with `alpha` 1 is the plain loss.
        task: "multiclass" or "multilabel"; see `forward` for the targets of each.
        reduction: "mean" divides by the number of known labels.
        label_smoothing: how much of each target is spread over the classes, from 0 to 1.
        ignore_index: marks an unknown label in targets of an integer type.

    Raises:
        ValueError: a value outside of its range.
    """

    def __init__(
        self,
        *,
        alpha: float = 0.1,
        beta: float = 1.0,
        task: TaskName = Task.MULTICLASS,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> None:
        spec = Symmetric(alpha, beta)
        super().__init__(spec, task, 0, reduction, label_smoothing, ignore_index)
        self.alpha, self.beta = alpha, beta

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each sample or label."""
        smoothing = self.label_smoothing
        if self.multilabel:
            one = torch.ones((), device=logits.device)
            plain = multilabel_entries(logits, target, one, one, smoothing)
        else:
            plain = multiclass_entries(logits, target, None, self.ignore_index, smoothing)
        if self.beta == 0.0:
            return self.alpha * plain
        if self.multilabel:
            reverse = reverse_multilabel(logits, target, smoothing)
        else:
            reverse = reverse_multiclass(logits, target, self.ignore_index, smoothing)
        return self.alpha * plain + self.beta * reverse


def reverse_multiclass(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    label_smoothing: float,
    least: float = LEAST,
) -> Tensor:
    """Return −Σ_c p_c·log q_c of each sample (N, …), p the softmax; zero where it is unknown."""
    logits = widen(logits)
    even = torch.ones((), device=logits.device) / logits.shape[1]
    q = class_probabilities(logits, target, ignore_index, label_smoothing, even)
    penalties = -q.nan_to_num(nan=1.0).clamp(min=least, max=1.0).log()
    return (logits.softmax(dim=1) * penalties).sum(dim=1)


def reverse_multilabel(
    logits: Tensor, target: Tensor, label_smoothing: float, least: float = LEAST
) -> Tensor:
    """Return −p·log y − (1 − p)·log(1 − y) of each entry (N, C, …); zero where y is NaN."""
    logits = widen(logits)
    target = target.to(logits)
    if label_smoothing > 0.0:
        target = smooth_labels(target, label_smoothing)
    truth, falsehood = target.nan_to_num(nan=1.0), (1 - target).nan_to_num(nan=1.0)
    against = -truth.clamp(min=least, max=1.0).log() * logits.sigmoid()
    return against - falsehood.clamp(min=least, max=1.0).log() * F.sigmoid(-logits)
