"""Any loss on calibrated logits: FedLC's margins before another loss than cross-entropy.

Multi-label data has a softmax of two for each label, its cases and those against it, which is
calibrated in the same way; FedLC's paper knows multi-class data alone, so that part is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedbb.losses.base import Loss
from fedbb.losses.functional import check_classes, widen
from fedbb.losses.logit_calibrated import FAR, calibrate, margins
from fedbb.records import FloatArray, LabelCounts, Task

ALONE = {
    Task.MULTICLASS: "it holds one class only, which is compared with no other: it learns nothing",
    Task.MULTILABEL: "every class has one kind of case only: it learns nothing",
}


@dataclass(frozen=True)
class Calibration:
    """How far logits are calibrated: the factor on FedLC's margins, which FedLC calls τ.

    `margin` is for classes, `label_margin` for the labels of multi-label data. At 0 classes the
    client does not hold drop out of its softmax all the same, and so do labels that it holds one
    kind of case of.
    """

    margin: float = 10.0
    label_margin: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("margin", self.margin), ("label_margin", self.label_margin)):
            if not 0.0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite number of at least 0, not {value}")


@dataclass(frozen=True)
class Calibrated:
    """Another loss on calibrated logits."""

    loss: Loss
    calibration: Calibration

    def supports(self, task: Task) -> bool:
        """Suit what the other loss suits."""
        return self.loss.supports(task)

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the other loss for these counts, behind their margins."""
        if task is Task.MULTILABEL:
            margin = case_margins(counts, self.calibration.label_margin)
        else:
            margin = margins(counts.positive, self.calibration.margin)
        kept = torch.from_numpy(margin).to(torch.get_default_dtype())
        return CalibratedLoss(self.loss.bind(counts, task), kept, task)

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the other loss's, or zero on a client that has nothing to compare."""
        return 0.0 if _alone(counts, task) else self.loss.mean_weight(counts, task)

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Tell of a client that learns nothing, and what the other loss tells."""
        return [ALONE[task]] if _alone(counts, task) else self.loss.diagnostics(counts, task)


class CalibratedLoss(nn.Module):
    """A loss module that is given logits less their margins."""

    margin: Tensor

    def __init__(self, inner: nn.Module, margin: Tensor, task: Task) -> None:
        super().__init__()
        self.inner = inner
        self.calibrate = calibrate_labels if task is Task.MULTILABEL else calibrate
        self.register_buffer("margin", margin)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Score logits (N, C) against targets, (N,) or (N, C)."""
        check_classes(logits, self.margin.shape[0])
        logits = widen(logits)
        loss: Tensor = self.inner(self.calibrate(logits, self.margin.to(logits)), targets)
        return loss


def case_margins(counts: LabelCounts, strength: float) -> FloatArray:
    """Return what a label's cases have over the cases against it: strength·(p^(−1/4) − n^(−1/4)).

    Infinite for a label of one kind of case, with the sign that settles it as it is.
    """
    margin = np.where(counts.positive > 0, -np.inf, np.inf)
    both = _both(counts)
    positive, negative = counts.positive[both], counts.negative[both]
    margin[both] = strength * (positive**-0.25 - negative**-0.25)
    return margin


def calibrate_labels(logits: Tensor, margin: Tensor) -> Tensor:
    """Return logits less their margins; labels of one kind are settled and get no gradient."""
    settled = margin.isinf()
    return torch.where(settled, -FAR * margin.sign(), logits - margin.masked_fill(settled, 0.0))


def _alone(counts: LabelCounts, task: Task) -> bool:
    if task is Task.MULTILABEL:
        return not _both(counts).any()
    return bool(np.count_nonzero(counts.positive) == 1)


def _both(counts: LabelCounts) -> npt.NDArray[np.bool_]:
    return (counts.positive > 0) & (counts.negative > 0)
