"""Inter-case imbalance: positives against negatives of one class (Definition 1, Eq. 3 and 4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedbb.records import FloatArray


def effective_number(count: npt.ArrayLike, beta: float, tau: float = 1.0) -> FloatArray:
    """Return E = (1 − β^(n/τ)) / (1 − β), the effective number of n samples (Eq. 3).

    >>> effective_number([3, 100], beta=0.6).round(4)
    array([1.96, 2.5 ])
    """
    check_smoothing(beta, tau)
    counted = np.asarray(count, dtype=np.float64)
    if not np.all(np.isfinite(counted)) or np.any(counted < 0):
        raise ValueError("counts must be finite numbers of at least 0")
    scaled = counted / tau
    if beta == 0.0:
        return np.where(scaled > 0, 1.0, 0.0)
    # expm1 keeps full precision where β is so near to one that 1 − β^x would cancel.
    return np.asarray(-np.expm1(scaled * np.log(beta)) / (1.0 - beta))


def case_weights(
    positive: npt.ArrayLike, negative: npt.ArrayLike, *, beta: float, tau: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Return (α⁺, α⁻), each of shape (C,), summing to one per class (Eq. 4).

    Written with the effective numbers crossed over, so that a class without positives (α⁺ = 1) or
    without negatives (α⁺ = 0) needs no division by zero; a class without any case gets one half.
    """
    of_positive = effective_number(positive, beta, tau)
    of_negative = effective_number(negative, beta, tau)
    total = of_positive + of_negative
    alpha = np.divide(of_negative, total, out=np.full_like(total, 0.5), where=total > 0)
    return alpha, 1.0 - alpha


def check_smoothing(beta: float, tau: float) -> None:
    """Refuse β and τ that Eq. 3 does not define."""
    if not 0.0 <= beta < 1.0:
        raise ValueError(f"beta must be in [0, 1), not {beta}")
    if not (tau > 0.0 and np.isfinite(tau)):
        raise ValueError(f"tau must be a finite number above 0, not {tau}")
