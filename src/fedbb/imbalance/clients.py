"""Inter-client imbalance: how differently skewed the clients are (Definition 3, Eq. 9 to 12)."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fedbb.imbalance.classes import class_shares, share_spread
from fedbb.records import FloatArray

Reading = Literal["share-std", "share-var", "count-std", "printed"]
READINGS: tuple[str, ...] = get_args(Reading)


def dispersion(
    positive: npt.ArrayLike,
    samples: npt.ArrayLike | None = None,
    *,
    reading: Reading = "share-std",
) -> FloatArray:
    """Return R, how imbalanced the class counts of each client are (Definition 3).

    >>> dispersion([[400, 350, 250], [900, 90, 10]]).round(3)
    array([0.062, 0.402])

    Args:
        positive: cases of each class, (C,) or (…, C), A of the paper.
        samples: for multi-label data, the number of images, see `class_shares`.
        reading: "share-std" is Definition 3, the standard deviation of p(y); "share-var" its
            square; "count-std" that of the counts themselves; "printed" is Eq. 10 as printed,
            which is one for every client.

    Returns:
        R along the last axis; 0 for equal classes, and 1 for a client without a positive case.

    Raises:
        ValueError: an unknown reading.
    """
    counts = np.asarray(positive, dtype=np.float64)
    match reading:
        case "printed":
            return np.ones(counts.shape[:-1])
        case "count-std":
            return share_spread(counts)
        case "share-std" | "share-var":
            spread = share_spread(class_shares(counts, samples))
            # Without a positive case the shares look perfectly even; take the upper bound instead.
            spread = np.where(counts.sum(axis=-1) > 0, spread, 1.0)
            return spread if reading == "share-std" else spread**2
    raise ValueError(f"reading must be one of {', '.join(READINGS)}, not {reading!r}")


def balance_weights(
    dispersions: npt.ArrayLike, samples: npt.ArrayLike, *, gamma: float = 1.0, floor: float = 1e-3
) -> FloatArray:
    """Return W = γ·ω_a + (1 − γ)·ω_b of clients with these R and sizes (Eq. 11 and 12).

    ω_a is 1/R and ω_b is n, each scaled to sum to one. R is raised to `floor`, or a perfectly
    balanced client would take all the weight; a client without samples gets none.
    """
    spread = np.asarray(dispersions, dtype=np.float64)
    sizes = np.asarray(samples, dtype=np.float64)
    check_balance(gamma, floor)
    for name, values in (("dispersion", spread), ("samples", sizes)):
        if values.ndim != 1 or not np.all(np.isfinite(values)) or np.any(values < 0):
            raise ValueError(f"{name} must be one finite number of at least 0 for each client")
    if spread.shape != sizes.shape:
        raise ValueError(f"{spread.size} dispersions do not fit {sizes.size} clients")
    if not sizes.sum() > 0:
        raise ValueError("no client holds a sample, so there is nothing to weigh")
    evenness = np.where(sizes > 0, 1.0 / np.maximum(spread, floor), 0.0)
    return np.asarray(gamma * evenness / evenness.sum() + (1.0 - gamma) * sizes / sizes.sum())


def client_weights(
    counts: npt.ArrayLike,
    samples: npt.ArrayLike | None = None,
    *,
    gamma: float = 1.0,
    reading: Reading = "share-std",
    floor: float = 1e-3,
) -> FloatArray:
    """Return the CBR weight of each client from its class counts.

    >>> client_weights([[60, 40], [90, 10]])
    array([0.8, 0.2])

    Args:
        counts: positive cases per client and class (K, C), A of the paper.
        samples: images per client (K,), for multi-label data; p(y) is then A / n instead of A / ΣA.
        gamma: 1 weighs by balance alone, 0 by size alone (FedAvg).
        reading: how imbalance is measured, see `dispersion`.
        floor: R is raised to at least this.

    Returns:
        Weights (K,) that sum to one.

    Raises:
        ValueError: counts that are no table, negative or infinite, or larger than the samples; γ or
            floor outside of its range; no sample at all.
    """
    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 2 or not np.all(np.isfinite(table)) or np.any(table < 0):
        raise ValueError(
            "counts must be a table (clients, classes) of finite numbers of at least 0"
        )
    sizes = table.sum(axis=1) if samples is None else np.asarray(samples, dtype=np.float64)
    if sizes.shape != table.shape[:1]:
        raise ValueError(f"samples must hold one number for each of {len(table)} clients")
    whole = None if samples is None else sizes[:, np.newaxis]
    if whole is not None and np.any(table > whole):
        raise ValueError("counts must not exceed the samples of their client")
    spread = dispersion(table, whole, reading=reading)
    return balance_weights(spread, sizes, gamma=gamma, floor=floor)


def check_balance(gamma: float, floor: float) -> None:
    """Refuse γ and floors that Eq. 12 does not define."""
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must be in [0, 1], not {gamma}")
    if not (floor > 0.0 and np.isfinite(floor)):
        raise ValueError(f"floor must be a finite number above 0, not {floor}")
