"""Inter-case imbalance: positives against negatives of one class (Definition 1, Eq. 3 and 4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedbb.records import FloatArray


def effective_number(count: npt.ArrayLike, beta: float, tau: float = 1.0) -> FloatArray:
    """Return E = (1 − β^(n/τ)) / (1 − β), the effective number of n samples (Eq. 3).

    >>> effective_number([3, 100], beta=0.6).round(4)
    array([1.96, 2.5 ])

    Args:
        count: numbers of samples n, of any shape.
        beta: smoothing, in [0, 1): at 0 every number of samples counts as one, towards 1 as itself.
        tau: temperature that divides the numbers.

    Returns:
        E of each number, below 1 / (1 − β).

    Raises:
        ValueError: a negative or infinite count, or β or τ outside of its range.
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
    """Return (α⁺, α⁻), the weights of positive and negative cases of each class (Eq. 4).

    A class without positives has α⁺ = 1, one without negatives α⁺ = 0, one without any case ½.

    >>> case_weights([1, 50], [99, 50], beta=0.9)[0].round(3)
    array([0.909, 0.5  ])

    Args:
        positive: positive cases A of each class, (C,) or (…, C).
        negative: negative cases B, of the same shape.
        beta: smoothing, see `effective_number`.
        tau: temperature.

    Returns:
        α⁺ and α⁻ of the shape of the counts; they sum to one.

    Raises:
        ValueError: as `effective_number`.
    """
    of_positive = effective_number(positive, beta, tau)
    of_negative = effective_number(negative, beta, tau)
    total = of_positive + of_negative
    # Written with the effective numbers crossed over, so that no class divides by zero.
    alpha = np.divide(of_negative, total, out=np.full_like(total, 0.5), where=total > 0)
    return alpha, 1.0 - alpha


def check_smoothing(beta: float, tau: float) -> None:
    """Refuse β and τ that Eq. 3 does not define."""
    if not 0.0 <= beta < 1.0:
        raise ValueError(f"beta must be in [0, 1), not {beta}")
    if not (tau > 0.0 and np.isfinite(tau)):
        raise ValueError(f"tau must be a finite number above 0, not {tau}")
