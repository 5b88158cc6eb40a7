"""Label skew: how far the clients' label distributions are from that of all samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.errors import DataError
from fedbb.imbalance import count_classes, sum_by_group
from fedbb.records import FloatArray, IntArray


def measure_skew(labels: npt.NDArray[Any], clients: Sequence[IntArray]) -> float:
    """Return the mean total variation distance of the clients from all samples, in [0, 1).

    Clients count by their sizes: the result is the share of samples that would need other labels
    for all clients to be alike. Clients drawn at random are not exactly at 0, and the smaller they
    are, the farther from it.

    Args:
        labels: class numbers (N,), or rows (N, C) of 0, 1 and NaN.
        clients: the places of each client's samples.

    >>> measure_skew(np.array([0, 0, 1, 1]), [np.array([0, 1]), np.array([2, 3])])
    0.5
    """
    sizes = np.array([len(places) for places in clients], dtype=np.float64)
    of_clients = labels[np.concatenate(clients)]
    owner = np.repeat(np.arange(len(clients)), [len(places) for places in clients])
    if labels.ndim == 1:  # the same as below, by one count instead of one per class
        counts = count_classes(of_clients, owner, (len(clients), int(labels.max()) + 1))
        mass = np.column_stack([counts, np.zeros(len(clients))])
    else:
        mass = class_mass(_rows(of_clients), owner, len(clients))
    distances = total_variation(mass / sizes[:, np.newaxis], mass.sum(axis=0) / sizes.sum())
    return float(np.dot(distances, sizes) / sizes.sum())


def total_variation(shares: FloatArray, whole: FloatArray) -> FloatArray:
    """Return ½ Σ|p_k − p| of each client's label shares (K, C) and those of the whole (C,)."""
    return np.asarray(np.abs(shares - whole).sum(axis=1) / 2)


def hellinger(shares: FloatArray, whole: FloatArray) -> FloatArray:
    """Return √(½ Σ(√p_k − √p)²) of each client's label shares (K, C) and the whole's (C,)."""
    return np.asarray(np.sqrt(((np.sqrt(shares) - np.sqrt(whole)) ** 2).sum(axis=1) / 2))


def jensen_shannon(shares: FloatArray, whole: FloatArray) -> FloatArray:
    """Return the Jensen–Shannon distance (base 2) of each client from the whole.

    It is the square root of the divergence, as in scipy, and at most 1.
    """
    middle = (shares + whole) / 2
    divergence = (_relative_entropy(shares, middle) + _relative_entropy(whole, middle)) / 2
    return np.asarray(np.sqrt(np.maximum(divergence, 0.0)))


def _relative_entropy(shares: FloatArray, of: FloatArray) -> FloatArray:
    """Return Σ p log2(p / q); a class without samples adds nothing."""
    ratio = np.divide(shares, of, out=np.ones_like(of), where=(shares > 0) & (of > 0))
    return np.asarray((shares * np.log2(ratio)).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Skew:
    """How far the label distributions of clients are from that of all samples.

    Each measure is 0 for a client with the distribution of the whole, and at most 1.

    Attributes:
        clients: names of the clients, in the order of the other fields.
        samples: samples of each client, (K,).
        total_variation: ½ Σ|p_k − p| of each client, (K,).
        hellinger: Hellinger distance of each client, (K,).
        jensen_shannon: Jensen–Shannon distance (base 2) of each client, (K,).
    """

    clients: tuple[str, ...]
    samples: IntArray
    total_variation: FloatArray
    hellinger: FloatArray
    jensen_shannon: FloatArray

    @property
    def mean(self) -> dict[str, float]:
        """The mean of each measure over clients, weighted by their samples."""
        shares = self.samples / self.samples.sum()
        measures = ("total_variation", "hellinger", "jensen_shannon")
        return {name: float(np.dot(getattr(self, name), shares)) for name in measures}


def skew(labels: npt.ArrayLike, owners: npt.ArrayLike | Sequence[IntArray]) -> Skew:
    """Measure the label skew of any division of samples among clients.

    >>> found = skew(["a", "a", "b", "b"], owners=["x", "x", "y", "y"])
    >>> found.total_variation.tolist(), found.mean["total_variation"]
    ([0.5, 0.5], 0.5)

    Args:
        labels: class numbers or names (N,), or rows (N, C) of 0, 1 and NaN. A sample of several
            classes counts in equal parts for each; one without any for a class of its own.
        owners: the client of each sample (N,), by number or name; or a `Partition`.

    Returns:
        The measures of each client and their means.

    Raises:
        DataError: there are no labels, or not one owner for each label.
    """
    array = np.asarray(labels)
    if array.ndim not in (1, 2) or len(array) == 0:
        raise DataError(f"labels have shape {array.shape}; allowed: (N,) and (N, C)")
    if array.ndim == 1:
        array = np.unique(array, return_inverse=True)[1]
    names, numbers = np.unique(np.asarray(_owner_array(owners)), return_inverse=True)
    if numbers.shape != (len(array),):
        raise DataError(f"owners have shape {numbers.shape}; {len(array)} labels need as many")
    sizes = np.bincount(numbers)
    mass = class_mass(_rows(array), numbers, len(names))
    shares, whole = mass / sizes[:, np.newaxis], mass.sum(axis=0) / len(array)
    return Skew(
        tuple(str(name) for name in names.tolist()),
        sizes.astype(np.int64),
        total_variation(shares, whole),
        hellinger(shares, whole),
        jensen_shannon(shares, whole),
    )


def _owner_array(owners: Any) -> Any:
    """Return the client of each sample; a partition knows it by the name `owners`."""
    return getattr(owners, "owners", owners)


def class_mass(
    has: npt.NDArray[np.bool_],
    groups: IntArray,
    number: int,
    *,
    rows: IntArray | None = None,
    times: npt.NDArray[Any] | None = None,
) -> FloatArray:
    """Return how many samples of each class the groups have, (number, C + 1).

    A sample of several classes counts in equal parts for each; the last column is for samples
    without a class. The arguments are those of `sum_by_group`, `has` being its values.
    """
    classes = has.sum(axis=1) if rows is None else has.sum(axis=1)[rows]
    weight = np.ones(len(groups)) if times is None else times
    parts = weight / np.maximum(classes, 1)
    without = np.bincount(groups, weights=weight * (classes == 0), minlength=number)
    return np.column_stack([sum_by_group(has, groups, number, rows=rows, times=parts), without])


def _rows(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which classes each sample has, (N, C); an unknown label is none."""
    if labels.ndim == 2:
        return np.asarray(labels == 1)
    return np.asarray(labels[:, None] == np.arange(int(labels.max()) + 1))
