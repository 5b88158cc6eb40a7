"""The unreduced losses and their reduction, shared by every loss here."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")

IGNORED = -100  # torch's own mark of a multi-class sample without a label


def multiclass_entries(logits: Tensor, targets: Tensor, weight: Tensor | None) -> Tensor:
    """Return w[y]·(−log softmax(z)[y]) of each sample (N,); zero where the label is unknown."""
    check_multiclass(logits, targets)
    logits = widen(logits)
    weight = None if weight is None else weight.to(logits)
    return F.cross_entropy(logits, targets, weight, reduction="none", ignore_index=IGNORED)


def multilabel_entries(
    logits: Tensor, targets: Tensor, positive: Tensor, negative: Tensor
) -> Tensor:
    """Return w⁺·y·(−log p) + w⁻·(1−y)·(−log(1−p)) of each entry (N, C); zero where y is NaN."""
    if logits.ndim != 2 or targets.shape != logits.shape:
        raise ValueError(
            "multi-label losses take logits and targets of one shape (N, C), "
            f"not {tuple(logits.shape)} and {tuple(targets.shape)}"
        )
    logits = widen(logits)
    targets = targets.to(logits)
    # A NaN times zero stays NaN, so both halves are cleared by comparison and not by a mask.
    truth, falsehood = targets.nan_to_num(nan=0.0), (1 - targets).nan_to_num(nan=0.0)
    gain = positive.to(logits) * truth * -F.logsigmoid(logits)
    return gain + negative.to(logits) * falsehood * -F.logsigmoid(-logits)


def reduce(entries: Tensor, targets: Tensor, reduction: Reduction) -> Tensor:
    """Reduce entries; `mean` divides by the number of known labels, never by a sum of weights."""
    if reduction == "none":
        return entries
    total = entries.sum()
    if reduction == "sum":
        return total
    known = ~targets.isnan() if targets.is_floating_point() else targets != IGNORED
    return total / known.sum().clamp(min=1)


def check_reduction(reduction: str) -> None:
    """Refuse a reduction that torch does not have either."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}")


def check_multiclass(logits: Tensor, targets: Tensor) -> None:
    """Refuse what is not logits (N, C) with one class number each."""
    if logits.ndim != 2 or targets.shape != logits.shape[:1]:
        raise ValueError(
            "multi-class losses take logits (N, C) and targets (N,), "
            f"not {tuple(logits.shape)} and {tuple(targets.shape)}"
        )


def check_classes(logits: Tensor, classes: int) -> None:
    """Refuse logits of another number of classes than the loss was built for."""
    # A single column would otherwise be broadcast over all classes without a word.
    if logits.ndim == 2 and logits.shape[1] != classes:
        raise ValueError(f"the loss knows {classes} classes, the logits {logits.shape[1]}")


def one_hot(targets: Tensor, classes: int) -> Tensor:
    """Return where the true class is, (N, C); nowhere in the row of an unknown label."""
    return targets.unsqueeze(1) == torch.arange(classes, device=targets.device)


def known_classes(targets: Tensor) -> Tensor:
    """Return class numbers fit to be an index: an unknown label is taken for class 0."""
    return targets.masked_fill(targets == IGNORED, 0)


def widen(logits: Tensor) -> Tensor:
    """Half-precision logits (autocast) are scored in float32."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
