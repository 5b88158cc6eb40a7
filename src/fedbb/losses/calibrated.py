"""Any loss on calibrated logits: FedLC's margins before another loss than cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedbb.losses.base import Loss
from fedbb.losses.entries import check_classes, widen
from fedbb.losses.logit_calibrated import calibrate, margins
from fedbb.records import LabelCounts, Task


@dataclass(frozen=True)
class Calibration:
    """How far logits are calibrated: the factor on FedLC's margins, which FedLC calls τ.

    At 0 classes the client does not hold drop out of its softmax all the same.
    """

    margin: float = 10.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.margin < float("inf"):
            raise ValueError(f"margin must be a finite number of at least 0, not {self.margin}")


@dataclass(frozen=True)
class Calibrated:
    """Another loss on calibrated logits; as it is for multi-label data, which has no softmax."""

    loss: Loss
    calibration: Calibration

    def suits(self, task: Task) -> bool:
        """Suit what the other loss suits."""
        return self.loss.suits(task)

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the other loss for these counts, behind their margins."""
        inner = self.loss.bind(counts, task)
        if task is Task.MULTILABEL:
            return inner
        margin = torch.from_numpy(margins(counts.positive, self.calibration.margin))
        return CalibratedLoss(inner, margin.to(torch.get_default_dtype()))

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the other loss's, or zero on a client of a single class, which has no loss."""
        return 0.0 if _alone(counts, task) else self.loss.mean_weight(counts, task)

    def remarks(self, counts: LabelCounts, task: Task) -> list[str]:
        """Tell of a client that learns nothing, and what the other loss tells."""
        if _alone(counts, task):
            return ["it holds one class only, which is compared with no other: it learns nothing"]
        return self.loss.remarks(counts, task)


class CalibratedLoss(nn.Module):
    """A loss module that is given logits less their margins."""

    margin: Tensor

    def __init__(self, inner: nn.Module, margin: Tensor) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("margin", margin)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Score logits (N, C) against class numbers (N,)."""
        check_classes(logits, self.margin.shape[0])
        logits = widen(logits)
        loss: Tensor = self.inner(calibrate(logits, self.margin.to(logits)), targets)
        return loss


def _alone(counts: LabelCounts, task: Task) -> bool:
    return task is Task.MULTICLASS and np.count_nonzero(counts.positive) == 1
