"""FedLC (Zhang et al. 2022): logits lowered by τ·n^(−1/4), most for the rarest class.

`LogitCalibrated` is FedLC's own loss. `Calibrated` puts the same margins before any other loss; for
multi-label data it calibrates each label's two cases, which FedLC's paper does not do.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedbb.imbalance.counts import Values
from fedbb.losses.base import Loss
from fedbb.losses.counted import Classes, CountedLoss, TaskName, complete_counts, count_targets
from fedbb.losses.functional import (
    IGNORED,
    Reduction,
    check_classes,
    check_multiclass,
    known_classes,
    multiclass_entries,
    one_hot,
    reduce,
    widen,
)
from fedbb.records import FloatArray, LabelCounts, Task

Denominator = Literal["stable", "paper"]

FAR = 1e4
"""How far below all others an absent class is put: its probability is exactly zero."""

UNBOUNDED = (
    'denominator="paper" leaves the true class out of the softmax, so the loss has no lower bound '
    'and training collapses; it only serves to show that. Train with "stable"'
)

ALONE = {
    Task.MULTICLASS: "it holds one class only, which is compared with no other: it learns nothing",
    Task.MULTILABEL: "every class has one kind of case only: it learns nothing",
}


@dataclass(frozen=True)
class LogitCalibrated(Loss):
    """Hyper-parameters of FedLC's loss.

    Args:
        tau: factor on the margins, at least 0.
        denominator: "stable" is a softmax over all classes, "paper" the formula as printed.

    Raises:
        ValueError: a value outside of its range.
    """

    tau: float = 1.0
    denominator: Denominator = "stable"

    def __post_init__(self) -> None:
        if not 0.0 <= self.tau < float("inf"):
            raise ValueError(f"tau must be a finite number of at least 0, not {self.tau}")
        if self.denominator not in get_args(Denominator):
            allowed = ", ".join(get_args(Denominator))
            raise ValueError(f"denominator must be one of {allowed}, not {self.denominator!r}")

    def supports(self, task: Task) -> bool:
        """Support multi-class only: without a softmax there is nothing to calibrate against."""
        return task is Task.MULTICLASS

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss for a client with these counts."""
        return FedLCLoss(counts.positive, task=task, tau=self.tau, denominator=self.denominator)

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return one, or zero on a client of a single class, which has no loss."""
        return 0.0 if np.count_nonzero(counts.positive) == 1 else 1.0

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Report a client that learns nothing."""
        if self.mean_weight(counts, task) > 0:
            return []
        return ["it holds one class only, FedLC compares it with no other and it learns nothing"]


class FedLCLoss(CountedLoss):
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

    Raises:
        ValueError: counts or hyper-parameters outside of their range, or a multi-label task.
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
        spec = LogitCalibrated(tau, denominator)
        counts = complete_counts(positives, None, None, _check_task(task))
        super().__init__(spec, counts, Task(task), reduction)
        self._keep("margin", margins(counts.positive, tau))
        if denominator == "paper":
            warnings.warn(UNBOUNDED, RuntimeWarning, stacklevel=2)

    @classmethod
    def from_targets(
        cls,
        targets: Values,
        *,
        task: TaskName = Task.MULTICLASS,
        classes: Classes = None,
        tau: float = 1.0,
        denominator: Denominator = "stable",
        reduction: Reduction = "mean",
    ) -> FedLCLoss:
        """Count a training set's targets and return the loss for them.

        Args:
            targets: class numbers or names (N,); unknown labels, −100, count nowhere.
            task: "multiclass"; multi-label is refused.
            classes: number of classes or their names, needed where some may be absent.
            tau: see the constructor, as for the arguments that follow.
            denominator: "stable" or "paper".
            reduction: "mean", "sum" or "none".

        Returns:
            The loss; `class_names` has the names of text classes, sorted unless given.

        Raises:
            ValueError: targets that cannot be counted.
        """
        counts, names = count_targets(targets, _check_task(task), classes)
        loss = cls(counts.positive, tau=tau, denominator=denominator, reduction=reduction)
        loss.class_names = names
        return loss

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


@dataclass(frozen=True)
class Calibration:
    """How far logits are calibrated: factors on FedLC's margins, which FedLC calls τ.

    Also at 0, classes that the client does not hold drop out of its softmax, and so do labels of
    which it has one kind of case only.

    Args:
        margin: for the classes of multi-class data.
        label_margin: for the labels of multi-label data.

    Raises:
        ValueError: a value outside of its range.
    """

    margin: float = 10.0
    label_margin: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("margin", self.margin), ("label_margin", self.label_margin)):
            if not 0.0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite number of at least 0, not {value}")


@dataclass(frozen=True)
class Calibrated(Loss):
    """Another loss on calibrated logits."""

    loss: Loss
    calibration: Calibration

    def supports(self, task: Task) -> bool:
        """Support what the other loss supports."""
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

    def mean_weights(self, positive: FloatArray, negative: FloatArray, task: Task) -> FloatArray:
        """Return `mean_weight` of many clients at once."""
        inner = self.loss.mean_weights(positive, negative, task)
        return np.where(_is_alone(positive, negative, task), 0.0, inner)

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Report a client that learns nothing, or what the other loss reports."""
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
    both = (counts.positive > 0) & (counts.negative > 0)
    positive, negative = counts.positive[both], counts.negative[both]
    margin[both] = strength * (positive**-0.25 - negative**-0.25)
    return margin


def calibrate_labels(logits: Tensor, margin: Tensor) -> Tensor:
    """Return logits less their margins; labels of one kind are settled and get no gradient."""
    settled = margin.isinf()
    return torch.where(settled, -FAR * margin.sign(), logits - margin.masked_fill(settled, 0.0))


def _alone(counts: LabelCounts, task: Task) -> bool:
    return bool(_is_alone(counts.positive, counts.negative, task))


def _is_alone(positive: FloatArray, negative: FloatArray, task: Task) -> npt.NDArray[np.bool_]:
    """Return whether clients of these cases (…, C) have nothing to compare."""
    if task is Task.MULTILABEL:
        return np.asarray(~((positive > 0) & (negative > 0)).any(axis=-1))
    return np.asarray(np.count_nonzero(positive, axis=-1) == 1)
