"""Plain cross-entropy: softmax for multi-class, sigmoid (BCE) for multi-label."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedbb.losses.base import Loss
from fedbb.losses.functional import Reduction, multiclass_entries, multilabel_entries, reduce
from fedbb.records import LabelCounts, Task


class PlainLoss(nn.Module):
    """CE or BCE on logits, the mean over known labels, times a constant."""

    def __init__(self, task: Task, scale: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.task = Task(task)
        self.scale = scale
        self.reduction: Reduction = reduction

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Score logits (N, C) against targets, (N,) or (N, C)."""
        if self.task is Task.MULTICLASS:
            entries = multiclass_entries(logits, targets, weight=None)
        else:
            one = torch.ones((), device=logits.device)
            entries = multilabel_entries(logits, targets, one, one)
        return self.scale * reduce(entries, targets, self.reduction)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """The plain loss, which does not depend on a client's counts."""

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return CE or BCE."""
        return PlainLoss(task)


@dataclass(frozen=True)
class ScaledCrossEntropy(Loss):
    """The plain loss times the mean weight that another loss would give this client.

    The control for a re-weighted loss: it takes the same step sizes and re-weights nothing.
    """

    like: Loss

    def supports(self, task: Task) -> bool:
        """Support what the other loss supports."""
        return self.like.supports(task)

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return CE or BCE times the other loss's mean weight on these counts."""
        return PlainLoss(task, scale=self.mean_weight(counts, task))

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the other loss's mean weight."""
        return self.like.mean_weight(counts, task)

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Return the other loss's diagnostics, since its step sizes are used."""
        return self.like.diagnostics(counts, task)
