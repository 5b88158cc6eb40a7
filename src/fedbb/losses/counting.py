"""What the losses built from counts accept: arrays of counts, or a training set's targets."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedbb.imbalance.counts import count_labels
from fedbb.losses.functional import IGNORED
from fedbb.records import LabelCounts, Task

Values = npt.ArrayLike | Tensor
TaskName = Task | Literal["multiclass", "multilabel"]


def complete_counts(
    positives: Values, negatives: Values | None, samples: int | None, task: Task
) -> LabelCounts:
    """Return the counts of both cases; negatives that are not given follow from the samples."""
    positive = _as_array(positives).astype(np.float64)
    if negatives is not None:
        negative = _as_array(negatives).astype(np.float64)
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


def count_targets(targets: Values, task: TaskName, classes: int | None) -> LabelCounts:
    """Count a training set's targets; unknown labels, NaN or −100, count nowhere.

    `classes` is needed where the last classes may be absent from multi-class targets.
    """
    array = _as_array(targets)
    if array.ndim == 1:
        array = array[array != IGNORED]
    if array.size == 0:
        raise ValueError("targets are empty, so there is nothing to count")
    if classes is None:
        classes = array.shape[1] if array.ndim == 2 else _highest(array) + 1
    return count_labels(array, task, classes)


def _highest(targets: npt.NDArray[Any]) -> int:
    """The highest class number; what is no number is left for `count_labels` to refuse."""
    return int(np.max(targets, where=np.isfinite(targets), initial=0))


def _as_array(values: Values) -> npt.NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
