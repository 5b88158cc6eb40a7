"""What drop-in losses share: torch's form, the unreduced entries, and the label counts.

`torch.jit.script` compiles the functions on tensors, hence their plain types: a reduction is a
`str`, shapes are lists, and constants are default arguments. It also reads annotations, which are
therefore no strings here.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbb.imbalance import Values, count_labels, number_classes, to_array
from fedbb.records import FloatArray, LabelCounts, Task

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")

IGNORED = -100  # torch's own mark of a multi-class sample without a label

TaskName = Task | Literal["multiclass", "multilabel"]
Classes = int | Sequence[str] | None
"""The number of classes, their names in order, or None to take those that occur."""


class DropInLoss(nn.Module):
    """A loss that is called as torch's are; a subclass scores the entries.

    Annotations of this package's losses are not strings, since `torch.jit.script` reads them.

    Attributes:
        task: multi-class or multi-label.
        reduction: "mean", "sum" or "none".
        label_smoothing: how much of each target is spread over the classes.
        ignore_index: marks an unknown label in targets of an integer type.
    """

    def __init__(
        self,
        spec: Any,
        task: TaskName,
        classes: int,
        reduction: Reduction,
        label_smoothing: float,
        ignore_index: int,
    ) -> None:
        super().__init__()
        check_options(reduction, label_smoothing)
        self.spec = spec
        self.task = Task(task)
        self.multilabel = self.task is Task.MULTILABEL
        self.classes = classes
        self.reduction: Reduction = reduction
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Score logits (N, C, …), or (N,) for two classes or one label.

        Args:
            input: logits.
            target: multi-class, class numbers (N, …) of any integer type, or floating-point class
                probabilities of the shape of `input`; multi-label, 0, 1 or anything between, of the
                shape of `input`. NaN and, in an integer type, `ignore_index` are unknown labels.

        Returns:
            The reduced loss; with "none", one value for each sample or each label.

        Raises:
            ValueError: shapes that do not fit each other or the number of classes.
        """
        logits, labels = align(input, target, self.classes, self.multilabel, self.ignore_index)
        entries = self.entries(logits, labels)
        if self.reduction == "none" and self.multilabel:
            return entries.reshape(input.shape)
        return reduce(entries, labels, self.reduction, self.ignore_index)

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each sample or label, before the reduction."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Return task, hyper-parameters and options for the module's printed form."""
        options = [f"task={self.task.value}", str(self.spec), f"reduction={self.reduction}"]
        if self.label_smoothing:
            options.append(f"label_smoothing={self.label_smoothing:g}")
        if self.ignore_index != IGNORED:
            options.append(f"ignore_index={self.ignore_index}")
        return ", ".join(options)

    def _keep(self, name: str, values: FloatArray) -> None:
        """Register values as a buffer of the default floating-point type.

        It is not persistent: the counts define it, and a model that holds its loss keeps the
        checkpoint it had.
        """
        kept = torch.from_numpy(values).to(torch.get_default_dtype())
        self.register_buffer(name, kept, persistent=False)


class CountedLoss(DropInLoss):
    """A loss that is built from the label counts of a training set.

    Attributes:
        counts: the label counts it was built from.
        class_names: names of the classes by number, or None where they are unknown.
    """

    def __init__(
        self,
        spec: Any,
        counts: LabelCounts,
        task: TaskName,
        reduction: Reduction,
        label_smoothing: float,
        ignore_index: int,
    ) -> None:
        classes = len(counts.positive)
        super().__init__(spec, task, classes, reduction, label_smoothing, ignore_index)
        self.counts = counts
        self.class_names: tuple[str, ...] | None = None


Counted = TypeVar("Counted", bound=CountedLoss)


def of_targets(
    make: Callable[..., Counted],
    targets: Values,
    task: TaskName,
    classes: Classes,
    ignore_index: int,
    **options: Any,
) -> Counted:
    """Count a training set's targets, and return the loss for them with the names of its classes.

    Args:
        make: takes positives, negatives, `task`, `ignore_index` and the options.
        targets: see `count_targets`, as for the arguments that follow.
        task: "multiclass" or "multilabel".
        classes: number of classes or their names.
        ignore_index: marks a target that is unknown.
        options: further arguments of the loss.

    Raises:
        ValueError: targets that cannot be counted.
    """
    counts, names = count_targets(targets, task, classes, ignore_index)
    loss = make(counts.positive, counts.negative, task=task, ignore_index=ignore_index, **options)
    loss.class_names = names
    return loss


def complete_counts(
    positives: Values, negatives: Values | None, samples: int | None, task: Task
) -> LabelCounts:
    """Return the counts of both cases; missing negatives follow from the samples."""
    positive = to_array(positives).astype(np.float64)
    if negatives is not None:
        negative = to_array(negatives).astype(np.float64)
    elif samples is not None or task is Task.MULTICLASS:
        with np.errstate(invalid="ignore"):  # an infinite count is refused below
            negative = (positive.sum() if samples is None else float(samples)) - positive
    else:
        raise ValueError("multi-label counts need negatives or samples beside the positives")
    counted = np.stack([positive, negative]) if positive.shape == negative.shape else None
    if counted is None or positive.ndim != 1 or positive.size == 0:
        raise ValueError("positives and negatives must be of one shape (C,)")
    if not np.all(np.isfinite(counted)) or np.any(counted < 0):
        raise ValueError(
            "counts must be finite and at least 0; are there more positives than samples?"
        )
    if negatives is not None and samples is not None and np.any(positive + negative > samples):
        raise ValueError(f"positives and negatives of a class exceed the {samples} samples")
    whole = samples if samples is not None else round(float((positive + negative).max()))
    return LabelCounts(positive, negative, samples=whole)


def count_targets(
    targets: Values, task: TaskName, classes: Classes, ignore_index: int = IGNORED
) -> tuple[LabelCounts, tuple[str, ...] | None]:
    """Count a training set's targets; unknown labels, NaN or `ignore_index`, count nowhere.

    Multi-class targets of three or more axes are masks, of which each element is counted. Further
    axes of multi-label targets follow the classes, (N, C, …). A soft label counts in part.

    Returns:
        The counts, and the class names where text or `classes` gives them.
    """
    array = to_array(targets)
    if array.dtype.kind == "U" and Task(task) is Task.MULTICLASS and array.ndim == 1:
        if isinstance(classes, int):
            raise ValueError("text targets need the names of the classes, not their number")
        array, names = number_classes(array, classes)
        return count_labels(array, task, len(names)), names
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{Task(task)} targets must be numbers, not {array.dtype}")
    array = _as_rows(array, Task(task), ignore_index)
    if array.size == 0:
        raise ValueError("targets are empty, so there is nothing to count")
    known = None if classes is None or isinstance(classes, int) else tuple(classes)
    if known is not None:
        number = len(known)
    elif isinstance(classes, int):
        number = classes
    else:
        number = array.shape[1] if array.ndim == 2 else _highest(array) + 1
    return _count_rows(array, task, number), known


def _as_rows(targets: npt.NDArray[Any], task: Task, ignore_index: int) -> npt.NDArray[Any]:
    """Return class numbers (N,) without the unknown ones, or labels (N, C) with NaN for them."""
    if task is Task.MULTICLASS:
        targets = targets.ravel() if targets.ndim > 2 else targets
        return targets[targets != ignore_index] if targets.ndim == 1 else targets
    if targets.ndim > 2:
        targets = np.moveaxis(targets, 1, -1).reshape(-1, targets.shape[1])
    if targets.dtype.kind in "iu" and np.any(targets == ignore_index):
        return np.where(targets == ignore_index, np.nan, targets)
    return targets


def _count_rows(targets: npt.NDArray[Any], task: TaskName, classes: int) -> LabelCounts:
    """Count rows; soft labels, which lie between 0 and 1, count for both cases in part."""
    is_soft = targets.ndim == 2 and bool(np.any((targets > 0) & (targets < 1)))
    if Task(task) is Task.MULTICLASS or not is_soft:
        return count_labels(targets, task, classes)
    if targets.shape[1] != classes or np.any((targets < 0) | (targets > 1)):
        raise ValueError(f"soft labels must be (N, {classes}) from 0 to 1 or NaN (unknown)")
    known = ~np.isnan(targets)
    positive = np.where(known, targets, 0.0).sum(axis=0, dtype=np.float64)
    return LabelCounts(positive, known.sum(axis=0) - positive, samples=len(targets))


def _highest(targets: npt.NDArray[Any]) -> int:
    """Return the highest class number; `count_labels` refuses what is not a number."""
    return int(np.max(targets, where=np.isfinite(targets), initial=0))


def align(
    input: Tensor, target: Tensor, classes: int, multilabel: bool, ignore_index: int = IGNORED
) -> tuple[Tensor, Tensor]:
    """Return logits (N, C, …) and the targets in the form that the entries below take.

    Args:
        input: logits (N, C, …), or (N,) for a single label or for two classes.
        target: class numbers (N, …) of an integer type, or floating-point class probabilities, or
            labels of the shape of `input`.
        classes: the number of classes that the loss was built for, 0 for any.
        multilabel: whether each class is a label of its own.
        ignore_index: marks an unknown label in a target of an integer type.

    Returns:
        Logits in single precision at least. Multi-class targets are class numbers in int64, or
        probabilities; multi-label targets are floating-point numbers, NaN where unknown.

    Raises:
        ValueError: shapes that do not fit each other or the number of classes.
    """
    logits = widen(input)
    if multilabel:
        check_shapes(input, target, target.shape == input.shape and input.dim() > 0, multilabel)
        if not target.is_floating_point():
            target = target.to(logits).masked_fill(target == ignore_index, float("nan"))
        if input.dim() == 1:
            logits, target = logits.unsqueeze(1), target.unsqueeze(1)
    else:
        target = target if target.is_floating_point() else target.long()
        if input.dim() == 1 and target.dim() == 1:
            # One logit is that of class 1 against class 0, whose logit is 0.
            logits = torch.stack((torch.zeros_like(logits), logits), dim=1)
            if target.is_floating_point():
                target = torch.stack((1 - target, target), dim=1)
        if target.is_floating_point():
            fits = target.shape == logits.shape
        else:
            fits = logits.dim() > 1 and target.shape == logits.shape[:1] + logits.shape[2:]
        check_shapes(input, target, fits, multilabel)
    check_classes(logits, classes)
    return logits, target


def multiclass_entries(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return Σ_c q_c·w_c·(−log softmax(z)_c) of each sample (N, …); zero where it is unknown.

    Class numbers are a q of one and zeros; a row of probabilities with a NaN in it is unknown.
    """
    logits = widen(logits)
    weight = None if weight is None else weight.to(logits)
    if target.is_floating_point():
        unknown = target.isnan().any(dim=1)
        known = target.to(logits).masked_fill(unknown.unsqueeze(1), 0.0)
        entries = F.cross_entropy(
            logits, known, weight, reduction="none", label_smoothing=label_smoothing
        )
        return entries.masked_fill(unknown, 0.0)
    return F.cross_entropy(
        logits,
        target,
        weight,
        ignore_index=ignore_index,
        reduction="none",
        label_smoothing=label_smoothing,
    )


def multilabel_entries(
    logits: Tensor,
    target: Tensor,
    positive: Tensor,
    negative: Tensor,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return w⁺·y·(−log p) + w⁻·(1−y)·(−log(1−p)) of each entry (N, C, …); zero where y is NaN."""
    logits = widen(logits)
    target = target.to(logits)
    if label_smoothing > 0.0:
        target = smooth_labels(target, label_smoothing)
    # A NaN times zero stays NaN, so both halves are cleared by comparison and not by a mask.
    truth, falsehood = target.nan_to_num(nan=0.0), (1 - target).nan_to_num(nan=0.0)
    gain = per_class(positive, logits) * truth * -F.logsigmoid(logits)
    return gain + per_class(negative, logits) * falsehood * -F.logsigmoid(-logits)


def reduce(entries: Tensor, target: Tensor, reduction: str, ignore_index: int = IGNORED) -> Tensor:
    """Reduce entries; `mean` divides by the number of known labels, never by a sum of weights."""
    if reduction == "none":
        return entries
    total = entries.sum()
    if reduction == "sum":
        return total
    if not target.is_floating_point():
        known = target != ignore_index
    elif target.dim() > entries.dim():
        known = ~target.isnan().any(dim=1)
    else:
        known = ~target.isnan()
    return total / known.sum().clamp(min=1)


def class_probabilities(
    logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float, share: Tensor
) -> Tensor:
    """Return q of the shape of the logits, smoothed towards `share`; NaN in an unknown row.

    Args:
        logits: (N, C, …).
        target: class numbers or probabilities, as `align` returns them.
        ignore_index: marks an unknown class number.
        label_smoothing: how much of q is spread over the classes, from 0 to 1.
        share: (C,) or (), the part of each class in what is spread.
    """
    if target.is_floating_point():
        unknown = target.isnan().any(dim=1, keepdim=True)
        truth = target.to(logits)
    else:
        unknown = (target == ignore_index).unsqueeze(1)
        place = target.unsqueeze(1).masked_fill(unknown, 0)
        truth = torch.zeros_like(logits).scatter(1, place, 1.0)
    if label_smoothing > 0.0:
        truth = (1 - label_smoothing) * truth + label_smoothing * per_class(share, logits)
    return truth.masked_fill(unknown, float("nan"))


def smooth_labels(target: Tensor, label_smoothing: float) -> Tensor:
    """Return labels moved towards one half, as two classes are; NaN stays."""
    return (1 - label_smoothing) * target + label_smoothing / 2


def check_options(reduction: str, label_smoothing: float) -> None:
    """Refuse options that torch does not have either."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}")
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing must be in [0, 1], not {label_smoothing}")


def check_shapes(input: Tensor, target: Tensor, fits: bool, multilabel: bool) -> None:
    """Refuse a batch whose shapes do not fit; broadcasting would hide it."""
    if not fits and multilabel:
        raise ValueError(
            "multi-label losses take logits and targets of one shape, (N, C, ...) or (N,) for a "
            f"single label, not {list(input.shape)} and {list(target.shape)}"
        )
    if not fits:
        raise ValueError(
            "multi-class losses take logits (N, C, ...) and class numbers (N, ...) or floating-"
            "point class probabilities (N, C, ...); logits (N,) are for two classes. These are "
            f"{list(input.shape)} and {list(target.shape)}"
        )


def check_classes(logits: Tensor, classes: int) -> None:
    """Refuse logits of another number of classes than the loss was built for; 0 is any."""
    # A single column would otherwise be broadcast over all classes without a word.
    if classes > 0 and logits.shape[1] != classes:
        raise ValueError(f"the loss knows {classes} classes, the logits {logits.shape[1]}")


def one_hot(target: Tensor, logits: Tensor) -> Tensor:
    """Return where the true class is, of the logits' shape; nowhere for an unknown label."""
    classes = torch.arange(logits.shape[1], device=target.device)
    return target.unsqueeze(1) == classes.reshape([-1] + [1] * (logits.dim() - 2))


def per_class(values: Tensor, logits: Tensor) -> Tensor:
    """Return values (C,) in the precision of logits (N, C, …), ready to be broadcast to them."""
    values = values.to(logits)
    return values.reshape([-1] + [1] * (logits.dim() - 2)) if values.dim() == 1 else values


def widen(logits: Tensor) -> Tensor:
    """Half-precision logits (autocast) are scored in float32."""
    is_half = logits.dtype == torch.float16 or logits.dtype == torch.bfloat16
    return logits.float() if is_half else logits
