"""The unreduced losses and their reduction, shared by every loss here.

`torch.jit.script` compiles these functions, hence their plain types: a reduction is a `str`, shapes
are lists, and constants are default arguments.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")

IGNORED = -100  # torch's own mark of a multi-class sample without a label


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
