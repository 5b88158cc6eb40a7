"""The paper's three levels of imbalance: cases of one class, classes of one client, clients.

Before them stands the counting of positive and negative cases (A and B of the paper).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedbb._util.collection import pause_collection
from fedbb.records import MOST_CLASSES, FloatArray, IntArray, LabelCounts, Task

Values = npt.ArrayLike | Tensor
"""Labels or counts: a list, an array, a tensor, or a column or frame of pandas or polars."""


def count_labels(labels: npt.ArrayLike, task: Task | str, classes: int) -> LabelCounts:
    """Return the number of positive and negative cases of each class.

    Args:
        labels: (N,) class numbers for a multi-class task; (N, C) of 0, 1 and NaN for a multi-label
            task, where NaN is an unknown label, which counts as neither.
        task: "multiclass" or "multilabel".
        classes: number of classes C, at most 100,000 for a multi-class task.

    Returns:
        Positive and negative cases of each class, (C,) each, and the number of samples.

    Raises:
        ValueError: labels of another shape, or outside of what the task allows.

    >>> count_labels([0, 0, 2], "multiclass", classes=3).negative
    array([1., 3., 2.])
    """
    array = np.asarray(labels)
    if Task(task) is Task.MULTICLASS:
        positive = np.bincount(_whole(array, classes), minlength=classes).astype(np.float64)
        negative = len(array) - positive
    else:
        positive, negative = (
            cases.sum(axis=0).astype(np.float64) for cases in _entries(array, classes)
        )
    return LabelCounts(positive, negative, samples=len(array))


def count_groups(
    labels: npt.ArrayLike, groups: Sequence[IntArray], task: Task | str, classes: int
) -> list[LabelCounts]:
    """Return the counts of many groups of rows at once, equal to `count_labels` of each.

    The time depends on the number of rows, not on the number of groups.
    """
    sizes = np.array([len(rows) for rows in groups])
    array = np.asarray(labels)[np.concatenate(groups)]
    owner = np.repeat(np.arange(len(groups)), sizes)
    if Task(task) is Task.MULTICLASS:
        positive = count_classes(_whole(array, classes), owner, (len(groups), classes))
        negative = sizes[:, np.newaxis] - positive
    else:
        positive, negative = (
            sum_by_group(cases, owner, len(groups)) for cases in _entries(array, classes)
        )
    rows = zip(positive, negative, sizes.tolist(), strict=True)
    with pause_collection():
        return [LabelCounts(*row) for row in rows]


def count_classes(
    labels: npt.NDArray[np.integer[Any]], groups: IntArray, shape: tuple[int, int]
) -> FloatArray:
    """Return the samples of each class in each group, `shape` being (groups, classes)."""
    flat = np.bincount(groups * shape[1] + labels, minlength=shape[0] * shape[1])
    return flat.reshape(shape).astype(np.float64)


def sum_by_group(
    values: npt.NDArray[Any],
    groups: IntArray,
    number: int,
    *,
    rows: IntArray | None = None,
    times: npt.NDArray[Any] | None = None,
) -> FloatArray:
    """Return the sums (number, C) of rows of `values` over their groups (R,).

    Args:
        values: rows (R, C), or the different ones (S, C) that `rows` refers to.
        groups: the group of each row.
        number: number of groups.
        rows: (R,), which row of `values` each is.
        times: (R,), a factor on each row.
    """

    def add_up(column: npt.NDArray[Any]) -> FloatArray:
        # One column at a time: all rows together may be far larger than `values`.
        picked = column if rows is None else column[rows]
        weights = picked if times is None else times * picked
        return np.bincount(groups, weights=weights, minlength=number).astype(np.float64)

    sums = [add_up(column) for column in values.T]
    return np.stack(sums, axis=1) if sums else np.zeros((number, 0))


def to_array(values: Values) -> npt.NDArray[Any]:
    """Return labels as an array of numbers or of text.

    Text, category and nullable columns of pandas become text or numbers; a missing number is NaN.
    Only `to_numpy` is asked of them, so that other libraries' columns do as well.

    Raises:
        ValueError: text among numbers, or a missing value among text.
    """
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    convert = getattr(values, "to_numpy", None)
    array = np.asarray(convert() if convert is not None else values)
    if array.dtype.kind in "ST":
        return array.astype(np.str_)
    return _plain(array) if array.dtype.kind == "O" else array


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of Python objects as one of text or of numbers."""
    flat = array.ravel().tolist()
    is_text = [isinstance(value, str) for value in flat]
    if flat and all(is_text):
        return np.array(flat, dtype=np.str_).reshape(array.shape)
    if any(is_text):
        odd = is_text.index(False)
        raise ValueError(f"label {odd} is {flat[odd]!r} among text; remove or name such samples")
    try:
        numbers = [np.nan if _is_missing(value) else value for value in flat]
        return np.array(numbers, dtype=np.result_type(*numbers)).reshape(array.shape)
    except (TypeError, ValueError) as error:
        raise ValueError(f"labels must be numbers or text: {error}") from error


def _is_missing(value: Any) -> bool:
    # pandas has a missing value of its own, which cannot be compared with anything.
    return value is None or type(value).__name__ == "NAType"


def number_classes(
    labels: npt.NDArray[Any], classes: Sequence[str] | None = None
) -> tuple[IntArray, tuple[str, ...]]:
    """Return text labels (N,) as class numbers, and the names of the classes.

    Args:
        labels: one class name per sample.
        classes: the classes in their order; None means those that occur, sorted.

    Raises:
        ValueError: a label that is none of `classes`.
    """
    found, places = np.unique(labels, return_inverse=True)
    names = tuple(found.tolist()) if classes is None else tuple(classes)
    number = {name: place for place, name in enumerate(names)}
    for name in found.tolist():
        if name not in number:
            raise ValueError(f"label {name!r} is none of the {len(names)} classes")
    return np.array([number[name] for name in found.tolist()], dtype=np.int64)[places], names


def _whole(labels: npt.NDArray[Any], classes: int) -> IntArray:
    if labels.ndim != 1:
        raise ValueError(f"multi-class labels must have shape (N,), not {labels.shape}")
    if classes > MOST_CLASSES:
        raise ValueError(f"{classes} classes are more than the {MOST_CLASSES} allowed")
    with np.errstate(invalid="ignore"):  # NaN is refused below, by comparison
        whole = labels.astype(np.int64)
    if np.any(whole != labels) or np.any(whole < 0) or np.any(whole >= classes):
        raise ValueError(f"multi-class labels must be whole numbers from 0 to {classes - 1}")
    return whole


def _entries(
    labels: npt.NDArray[Any], classes: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which entries are positive and which negative."""
    if labels.ndim != 2 or labels.shape[1] != classes:
        raise ValueError(f"multi-label labels must have shape (N, {classes}), not {labels.shape}")
    positive, negative = labels == 1, labels == 0
    if not np.all(positive | negative | np.isnan(labels)):
        raise ValueError("multi-label labels must be 0, 1 or NaN (unknown)")
    return positive, negative


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
        ValueError: counts that are not a table, negative or infinite, or larger than the samples;
            γ or floor outside of its range; no sample at all.
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
