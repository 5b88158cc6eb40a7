"""Losses in torch's form: what they share, and the label counts they are built from."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedbb.imbalance import Values, count_labels, number_classes, to_array
from fedbb.losses.functional import IGNORED, Reduction, align, check_options, reduce
from fedbb.records import FloatArray, LabelCounts, Task

TaskName = Task | Literal["multiclass", "multilabel"]
Classes = int | Sequence[str] | None
"""The number of classes, their names in order, or None to take those that occur."""


class DropInLoss(nn.Module):
    """A loss that is called as torch's are; a subclass scores the entries.

    Annotations of this package's losses are no strings, since `torch.jit.script` reads them.

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
    """Return the highest class number; `count_labels` refuses what is no number."""
    return int(np.max(targets, where=np.isfinite(targets), initial=0))
