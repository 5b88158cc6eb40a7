"""FedLC's loss (Zhang et al. 2022): logits lowered by τ·n^(−1/4), most for the rarest class."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fedbb.losses.counting import TaskName, Values, complete_counts, count_targets
from fedbb.losses.functional import (
    IGNORED,
    Reduction,
    check_classes,
    check_multiclass,
    check_reduction,
    known_classes,
    multiclass_entries,
    one_hot,
    reduce,
    widen,
)
from fedbb.records import FloatArray, LabelCounts, Task

Denominator = Literal["stable", "paper"]

FAR = 1e4
"""So far below all others an absent class is put: its probability is exactly zero, and finite."""

UNBOUNDED = (
    'denominator="paper" leaves the true class out of the softmax, so the loss has no lower bound '
    'and training collapses; it is there to show that, train with "stable"'
)


@dataclass(frozen=True)
class LogitCalibrated:
    """Hyper-parameters of FedLC's loss; `denominator` "paper" is the formula as it is printed."""

    tau: float = 1.0
    denominator: Denominator = "stable"

    def __post_init__(self) -> None:
        if not 0.0 <= self.tau < float("inf"):
            raise ValueError(f"tau must be a finite number of at least 0, not {self.tau}")
        if self.denominator not in get_args(Denominator):
            allowed = ", ".join(get_args(Denominator))
            raise ValueError(f"denominator must be one of {allowed}, not {self.denominator!r}")

    def supports(self, task: Task) -> bool:
        """Suit multi-class alone: without a softmax there is nothing to calibrate against."""
        return task is Task.MULTICLASS

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss for a client with these counts."""
        options: dict[str, Any] = {"tau": self.tau, "denominator": self.denominator}
        return FedLCLoss(counts.positive, task=task, **options)

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return one, or zero on a client of a single class, which has no loss."""
        return 0.0 if np.count_nonzero(counts.positive) == 1 else 1.0

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Tell of a client that learns nothing."""
        if self.mean_weight(counts, task) > 0:
            return []
        return ["it holds one class only, FedLC compares it with no other and it learns nothing"]


class FedLCLoss(nn.Module):
    """Cross-entropy on logits calibrated by the class counts, a drop-in for CE.

    Classes without a sample drop out: no probability, no gradient. Logits are calibrated for
    training only; what the model predicts is read from them as they are.

    >>> FedLCLoss([10000, 16, 0]).margin
    tensor([0.0000, 0.4000,    inf])

    Args:
        positives: cases of each class in the training data, (C,).
        tau: factor on the margins, at least 0.
        denominator: "stable" is a softmax over all classes; "paper" leaves the true class out of
            the denominator as printed, has no lower bound, and is there to show that it fails.
        task: "multiclass"; multi-label is refused.
        reduction: "mean" divides by the number of known labels.
    """

    margin: Tensor

    def __init__(
        self,
        positives: Values,
        *,
        tau: float = 1.0,
        denominator: Denominator = "stable",
        task: TaskName = Task.MULTICLASS,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        self.task = _check_task(task)
        self.spec = LogitCalibrated(tau, denominator)
        self.counts = complete_counts(positives, None, None, self.task)
        self.reduction: Reduction = reduction
        margin = torch.from_numpy(margins(self.counts.positive, tau))
        self.register_buffer("margin", margin.to(torch.get_default_dtype()))
        if denominator == "paper":
            warnings.warn(UNBOUNDED, RuntimeWarning, stacklevel=2)

    @classmethod
    def from_targets(
        cls,
        targets: Values,
        *,
        task: TaskName = Task.MULTICLASS,
        classes: int | None = None,
        **options: Any,
    ) -> FedLCLoss:
        """Count a training set's targets and return the loss for them.

        `classes` is needed where the last classes may be absent from the targets; `options` are
        those of the constructor. Unknown labels, −100, count nowhere.
        """
        counts = count_targets(targets, _check_task(task), classes)
        return cls(counts.positive, **options)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Score logits (N, C) against class numbers (N,)."""
        check_multiclass(logits, targets)
        check_classes(logits, self.margin.shape[0])
        logits = widen(logits)
        margin = self.margin.to(logits)
        if self.spec.denominator == "stable":
            entries = multiclass_entries(calibrate(logits, margin), targets, weight=None)
        else:
            entries = printed_entries(logits, targets, margin)
        return reduce(entries, targets, self.reduction)

    def extra_repr(self) -> str:
        """Name the hyper-parameters in the module's printed form."""
        return f"{self.spec}, reduction={self.reduction}"


def margins(positive: FloatArray, tau: float) -> FloatArray:
    """Return τ·n^(−1/4) of each class less the smallest of them; infinite for an absent class.

    A constant off all logits changes no softmax, and equal counts so give margins of exactly zero.
    """
    present = positive > 0
    if not present.any():
        return np.zeros_like(positive)
    margin = np.full_like(positive, np.inf)
    root = positive[present] ** -0.25
    margin[present] = tau * (root - root.min())
    return margin


def calibrate(logits: Tensor, margin: Tensor) -> Tensor:
    """Return logits less their margins, absent classes far below all others."""
    absent = margin.isinf()
    return _drop(logits - margin.masked_fill(absent, 0.0), absent)


def printed_entries(logits: Tensor, targets: Tensor, margin: Tensor) -> Tensor:
    """Return log Σ_{i≠y} e^(z_i − z_y) of calibrated logits z; zero where y has no rival."""
    calibrated = calibrate(logits, margin)
    truth = one_hot(targets, logits.shape[1])
    own = calibrated.gather(1, known_classes(targets).unsqueeze(1)).squeeze(1)
    entries = _drop(calibrated, truth).logsumexp(dim=1) - own
    has_rivals = (~(truth | margin.isinf())).any(dim=1)
    return torch.where(has_rivals & (targets != IGNORED), entries, 0.0)


def _drop(logits: Tensor, dropped: Tensor) -> Tensor:
    # −∞ would do for a softmax, but not for the gradient of one whose true class is dropped.
    lowest = logits.detach().amin(dim=1, keepdim=True) - FAR
    return torch.where(dropped, lowest, logits)


def _check_task(task: TaskName) -> Task:
    if Task(task) is Task.MULTILABEL:
        raise ValueError(
            "FedLC calibrates the classes of a softmax against each other; "
            "multi-label data has no softmax, so it is for multi-class data only"
        )
    return Task(task)
