"""Losses built from label counts: what they accept, and what their modules share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedbb.imbalance.counts import Values, count_labels, number_classes, to_array
from fedbb.losses.functional import IGNORED, Reduction, check_reduction
from fedbb.records import FloatArray, LabelCounts, Task

TaskName = Task | Literal["multiclass", "multilabel"]
Classes = int | Sequence[str] | None
"""The number of classes, their names in order, or None to take those that occur."""


class CountedLoss(nn.Module):
    """A loss module that is built from the label counts of a training set.

    Attributes:
        task: multi-class or multi-label.
        counts: the label counts it was built from.
        reduction: "mean", "sum" or "none".
        class_names: names of the classes by number, or None where they are unknown.
    """

    def __init__(self, spec: Any, counts: LabelCounts, task: Task, reduction: Reduction) -> None:
        super().__init__()
        check_reduction(reduction)
        self.spec = spec
        self.counts = counts
        self.task = task
        self.reduction: Reduction = reduction
        self.class_names: tuple[str, ...] | None = None

    def extra_repr(self) -> str:
        """Return task and hyper-parameters for the module's printed form."""
        return f"task={self.task.value}, {self.spec}, reduction={self.reduction}"

    def _keep(self, name: str, values: FloatArray) -> None:
        """Register values as a buffer of the default floating-point type."""
        self.register_buffer(name, torch.from_numpy(values).to(torch.get_default_dtype()))


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
    targets: Values, task: TaskName, classes: Classes
) -> tuple[LabelCounts, tuple[str, ...] | None]:
    """Count a training set's targets; unknown labels, NaN or −100, count nowhere.

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
    if array.ndim == 1:
        array = array[array != IGNORED]
    if array.size == 0:
        raise ValueError("targets are empty, so there is nothing to count")
    known = None if classes is None or isinstance(classes, int) else tuple(classes)
    if known is not None:
        number = len(known)
    elif isinstance(classes, int):
        number = classes
    else:
        number = array.shape[1] if array.ndim == 2 else _highest(array) + 1
    return count_labels(array, task, number), known


def _highest(targets: npt.NDArray[Any]) -> int:
    """Return the highest class number; `count_labels` refuses what is no number."""
    return int(np.max(targets, where=np.isfinite(targets), initial=0))
