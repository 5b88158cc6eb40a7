"""Plain cross-entropy: softmax for multi-class, sigmoid (BCE) for multi-label."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedbb.losses.base import Loss
from fedbb.losses.drop_in import (
    IGNORED,
    DropInLoss,
    Reduction,
    TaskName,
    multiclass_entries,
    multilabel_entries,
)
from fedbb.records import LabelCounts, Task


class PlainLoss(DropInLoss):
    """CE or BCE on logits, the mean over known labels, times a constant."""

    def __init__(self, task: TaskName, scale: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__("plain", task, 0, reduction, 0.0, IGNORED)
        self.scale = scale

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the plain loss times the constant."""
        return self.scale * super().forward(input, target)

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the plain loss of each sample or label."""
        if not self.multilabel:
            return multiclass_entries(logits, target, weight=None)
        one = torch.ones((), device=logits.device)
        return multilabel_entries(logits, target, one, one)


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

    Args:
        like: The other loss.
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
