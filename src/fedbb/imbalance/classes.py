"""Inter-class imbalance: the classes of one client against each other (Definition 2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedbb.imbalance.cases import effective_number
from fedbb.records import FloatArray


def class_shares(positive: npt.ArrayLike, samples: npt.ArrayLike | None = None) -> FloatArray:
    """Return p(y), the share of each class along the last axis; zero where nothing was counted.

    >>> class_shares([6, 3, 1])
    array([0.6, 0.3, 0.1])

    Args:
        positive: cases of each class, (C,) or (…, C).
        samples: for multi-label data, the number of images, or of those whose label is known for
            each class. The shares are then prevalences A / n instead of A / ΣA.

    Returns:
        Shares of the shape of `positive`; without `samples` they sum to one.
    """
    counts = np.asarray(positive, dtype=np.float64)
    if samples is None:
        whole = counts.sum(axis=-1, keepdims=True)
    else:
        whole = np.asarray(samples, dtype=np.float64)
    whole = np.broadcast_to(whole, counts.shape)
    return np.asarray(np.divide(counts, whole, out=np.zeros_like(counts), where=whole > 0))


def share_spread(shares: npt.ArrayLike) -> FloatArray:
    """Return the population standard deviation of the shares along the last axis.

    Args:
        shares: shares of classes, (C,) or (…, C), see `class_shares`.

    Returns:
        The deviation, of the shape without the last axis; zero for no classes.
    """
    values = np.asarray(shares, dtype=np.float64)
    return np.asarray(np.std(values, axis=-1)) if values.size else np.zeros(values.shape[:-1])


def class_factors(positive: npt.ArrayLike, *, beta: float, tau: float = 1.0) -> FloatArray:
    """Return 1/E per class, scaled to sum to C; zero for an absent class.

    This factor balances the classes' shares of the loss, which the paper's second α⁺ hardly does
    (docs/paper-notes.md).

    >>> class_factors([900, 90, 10], beta=0.9999).round(3)
    array([0.031, 0.298, 2.671])

    Args:
        positive: cases of each class, (C,) or (…, C).
        beta: smoothing, see `effective_number`.
        tau: temperature.

    Returns:
        Factors of the shape of `positive`.

    Raises:
        ValueError: as `effective_number`.
    """
    effective = effective_number(positive, beta, tau)
    inverse = np.divide(1.0, effective, out=np.zeros_like(effective), where=effective > 0)
    total = inverse.sum(axis=-1, keepdims=True)
    scale = np.divide(inverse.shape[-1], total, out=np.zeros_like(total), where=total > 0)
    return np.asarray(inverse * scale)
