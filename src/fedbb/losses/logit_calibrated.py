"""FedLC (Zhang et al. 2022): logits lowered by τ·n^(−1/4), most for the rarest class.

`LogitCalibrated` is FedLC's own loss. `Calibrated` puts the same margins before any other loss; for
multi-label data it calibrates each label's two cases, which FedLC's paper does not do.
"""

import warnings
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt
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
    align,
    class_probabilities,
    complete_counts,
    count_targets,
    multiclass_entries,
    one_hot,
    per_class,
    smooth_labels,
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
        label_smoothing: how much of each target is spread over the classes, from 0 to 1; classes
            that drop out get nothing of it.
        ignore_index: marks an unknown label in targets of an integer type.

    Raises:
        ValueError: counts or options outside of their range, a multi-label task, or label smoothing
            with the printed denominator.
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
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> None:
        spec = LogitCalibrated(tau, denominator)
        counts = complete_counts(positives, None, None, _check_task(task))
        super().__init__(spec, counts, task, reduction, label_smoothing, ignore_index)
        self._keep("margin", margins(counts.positive, tau))
        self.printed = denominator == "paper"
        if self.printed and label_smoothing > 0.0:
            raise ValueError('denominator="paper" has no label smoothing; train with "stable"')
        if self.printed:
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
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> Self:
        """Count a training set's targets and return the loss for them.

        Args:
            targets: class numbers or names (N,), or masks of class numbers (N, H, W, …).
            task: "multiclass"; multi-label is refused.
            classes: number of classes or their names, needed where some may be absent.
            tau: see the constructor, as for the arguments that follow.
            denominator: "stable" or "paper".
            reduction: "mean", "sum" or "none".
            label_smoothing: see the class.
            ignore_index: see the class; such targets count nowhere.

        Returns:
            The loss; `class_names` has the names of text classes, sorted unless given.

        Raises:
            ValueError: targets that cannot be counted.
        """
        counts, names = count_targets(targets, _check_task(task), classes, ignore_index)
        loss = cls(
            counts.positive,
            tau=tau,
            denominator=denominator,
            reduction=reduction,
            label_smoothing=label_smoothing,
            ignore_index=ignore_index,
        )
        loss.class_names = names
        return loss

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of each sample on calibrated logits."""
        margin, ignored = self.margin, self.ignore_index
        if self.printed:
            return printed_entries(logits, target, margin, ignored)
        target = smooth_present(logits, target, margin, ignored, self.label_smoothing)
        return multiclass_entries(calibrate(logits, margin), target, None, ignored)


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
    margin = per_class(margin, logits)
    absent = margin.isinf()
    return _drop(logits - margin.masked_fill(absent, 0.0), absent)


def smooth_present(
    logits: Tensor, target: Tensor, margin: Tensor, ignore_index: int, label_smoothing: float
) -> Tensor:
    """Return class probabilities smoothed over the present classes, or targets as they are."""
    if label_smoothing == 0.0:
        return target
    present = (~margin.isinf()).to(logits)
    share = present / present.sum()
    return class_probabilities(logits, target, ignore_index, label_smoothing, share)


def smooth_mixed(logits: Tensor, target: Tensor, margin: Tensor, label_smoothing: float) -> Tensor:
    """Return labels smoothed where both kinds of case occur, or as they are."""
    if label_smoothing == 0.0:
        return target
    settled = per_class(margin, logits).isinf()
    return torch.where(settled, target, smooth_labels(target.to(logits), label_smoothing))


def printed_entries(logits: Tensor, target: Tensor, margin: Tensor, ignore_index: int) -> Tensor:
    """Return log Σ_{i≠y} e^(z_i − z_y) of calibrated logits z; zero where y has no rival."""
    if target.is_floating_point():
        raise ValueError('denominator="paper" takes class numbers; train with "stable"')
    calibrated = calibrate(logits, margin)
    truth = one_hot(target, logits)
    known = target != ignore_index
    own = calibrated.gather(1, target.masked_fill(~known, 0).unsqueeze(1)).squeeze(1)
    entries = _drop(calibrated, truth).logsumexp(dim=1) - own
    has_rivals = (~(truth | per_class(margin, logits).isinf())).any(dim=1)
    return torch.where(has_rivals & known, entries, 0.0)


def _drop(logits: Tensor, dropped: Tensor, far: float = FAR) -> Tensor:
    # −∞ would do for a softmax, but not for the gradient of one whose true class is dropped.
    lowest = logits.detach().amin(dim=1, keepdim=True) - far
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
    """Another loss on calibrated logits.

    Args:
        loss: The other loss.
        calibration: The margins by which logits are lowered.
    """

    loss: Loss
    calibration: Calibration

    def supports(self, task: Task) -> bool:
        """Support what the other loss supports."""
        return self.loss.supports(task)

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the other loss for these counts, behind their margins."""
        kept = torch.from_numpy(self.margins(counts, task)).to(torch.get_default_dtype())
        return CalibratedLoss(self.loss.bind(counts, task), kept, task)

    def margins(self, counts: LabelCounts, task: Task) -> FloatArray:
        """Return what is taken off the logits of each class, (C,)."""
        if task is Task.MULTILABEL:
            return case_margins(counts, self.calibration.label_margin)
        return margins(counts.positive, self.calibration.margin)

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the other loss's, or zero on a client that has nothing to compare."""
        return (
            0.0
            if is_alone(counts.positive, counts.negative, task)
            else self.loss.mean_weight(counts, task)
        )

    def mean_weights(self, positive: FloatArray, negative: FloatArray, task: Task) -> FloatArray:
        """Return `mean_weight` of many clients at once."""
        inner = self.loss.mean_weights(positive, negative, task)
        return np.where(is_alone(positive, negative, task), 0.0, inner)

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Report a client that learns nothing, or what the other loss reports."""
        if is_alone(counts.positive, counts.negative, task):
            return [ALONE[task]]
        return self.loss.diagnostics(counts, task)


class CalibratedLoss(nn.Module):
    """A loss module that is given logits less their margins."""

    margin: Tensor

    def __init__(self, inner: nn.Module, margin: Tensor, task: Task) -> None:
        super().__init__()
        self.inner = inner
        self.multilabel = task is Task.MULTILABEL
        self.register_buffer("margin", margin, persistent=False)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Score logits (N, C, …) against targets as the inner loss takes them."""
        logits, target = align(input, target, self.margin.shape[0], self.multilabel)
        shift = calibrate_labels if self.multilabel else calibrate
        loss: Tensor = self.inner(shift(logits, self.margin), target)
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


def calibrate_labels(logits: Tensor, margin: Tensor, far: float = FAR) -> Tensor:
    """Return logits less their margins; labels of one kind are settled and get no gradient."""
    margin = per_class(margin, logits)
    settled = margin.isinf()
    return torch.where(settled, -far * margin.sign(), logits - margin.masked_fill(settled, 0.0))


def is_alone(positive: FloatArray, negative: FloatArray, task: Task) -> npt.NDArray[np.bool_]:
    """Return whether clients of these cases (…, C) have nothing to compare."""
    if task is Task.MULTILABEL:
        return np.asarray(~((positive > 0) & (negative > 0)).any(axis=-1))
    return np.asarray(np.count_nonzero(positive, axis=-1) == 1)
