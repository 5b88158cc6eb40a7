"""Uneven clients drawn from Dirichlet shares: skewed in their labels, or in their sizes.

The draws use numpy's legacy generator. Label skew draws in the order of the public code of FedML,
FedAlign, MOON and NIID-Bench, so the same seed gives the same split. Quantity skew does not: it
draws the sizes before the order of the samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbb.errors import DataError
from fedbb.records import FloatArray, IntArray

_LARGEST = 1e100
_SIZE_DRAWS = 10_000
_DEALT = 20_000_000


@dataclass(frozen=True)
class Skew:
    """How uneven: the smaller the concentration (δ of the paper), the more."""

    clients: int
    concentration: float
    min_samples: int = 10
    seed: int = 0


def label_skew(labels: IntArray, skew: Skew) -> IntArray:
    """Return the client of each sample, every class being dealt out by shares of its own.

    Clients that already hold an average number of samples get nothing of the further classes. All
    is drawn anew until every client has its minimum.
    """
    _check(skew, len(labels))
    if labels.min() < 0:
        raise DataError(f"label {int(labels.argmin())} is {labels.min()}; classes count from 0")
    rng = np.random.RandomState(skew.seed)
    members = [np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1)]
    # Enough draws for any split that is likely at all, yet an end within seconds.
    draws = min(max(_DEALT // len(labels), 100), 1000)
    for _ in range(draws):
        owners, sizes = _deal_classes(members, skew, rng)
        if sizes.min() >= skew.min_samples:
            return owners
    raise _too_uneven("label-skew", skew, len(labels), draws)


def _deal_classes(
    members: list[IntArray], skew: Skew, rng: np.random.RandomState
) -> tuple[IntArray, IntArray]:
    """Return one draw: the client of each sample, and the clients' sizes."""
    samples = sum(len(places) for places in members)
    owners = np.empty(samples, dtype=np.int64)
    sizes = np.zeros(skew.clients, dtype=np.int64)
    for places in members:
        shuffled = places.copy()
        rng.shuffle(shuffled)
        shares = _open_shares(sizes < samples / skew.clients, skew, rng)
        dealt = _cut(shares, len(places))
        owners[shuffled] = np.repeat(np.arange(skew.clients), dealt)
        sizes += dealt
    return owners, sizes


def _open_shares(
    is_open: npt.NDArray[np.bool_], skew: Skew, rng: np.random.RandomState
) -> FloatArray:
    """Return Dirichlet shares, those of full clients set to zero and the rest scaled to one."""
    shares = _dirichlet(skew, rng) * is_open
    total = shares.sum()
    if total > 0:
        return np.asarray(shares / total)
    return _all_to_one(np.flatnonzero(is_open), skew, rng)


def quantity_skew(samples: int, skew: Skew) -> IntArray:
    """Return the client of each sample; clients differ in size only, whatever the labels are."""
    _check(skew, samples)
    rng = np.random.RandomState(skew.seed)
    for _ in range(_SIZE_DRAWS):
        shares = _dirichlet(skew, rng)
        if shares.min() * samples < skew.min_samples:
            continue
        sizes = _cut(shares, samples)
        # Rounding may cost a client one sample, so its size must suffice as well as its share.
        if sizes.min() >= skew.min_samples:
            owners = np.empty(samples, dtype=np.int64)
            owners[rng.permutation(samples)] = np.repeat(np.arange(skew.clients), sizes)
            return owners
    raise _too_uneven("quantity-skew", skew, samples, _SIZE_DRAWS)


def _dirichlet(skew: Skew, rng: np.random.RandomState) -> FloatArray:
    """Return shares that sum to one, also where floats cannot hold what they are made from."""
    # Beyond this the gamma draws would overflow, and the shares are equal to the last digit anyway.
    concentration = min(skew.concentration, _LARGEST)
    shares = rng.dirichlet(np.full(skew.clients, concentration))
    if np.isfinite(shares).all():
        return shares
    return _all_to_one(np.arange(skew.clients), skew, rng)


def _all_to_one(clients: IntArray, skew: Skew, rng: np.random.RandomState) -> FloatArray:
    """Return what shares tend to as δ → 0: one of these clients, any of them, has all."""
    shares = np.zeros(skew.clients)
    shares[rng.choice(clients)] = 1.0
    return shares


def _cut(shares: FloatArray, number: int) -> IntArray:
    """Return how many of `number` each client gets: cuts rounded down, the rest to the last."""
    ends = (np.cumsum(shares) * number).astype(np.int64)[:-1]
    return np.diff(ends, prepend=0, append=number)


def _check(skew: Skew, samples: int) -> None:
    if skew.clients < 1 or skew.min_samples < 1:
        raise DataError(
            f"clients is {skew.clients}, min_samples is {skew.min_samples}; both must be at least 1"
        )
    if not (skew.concentration > 0 and math.isfinite(skew.concentration)):
        raise DataError(f"concentration is {skew.concentration}; it must be above 0 and finite")
    if not 0 <= skew.seed < 2**32:
        raise DataError(f"the partition's seed is {skew.seed}; allowed are 0 to {2**32 - 1}")
    if skew.clients * skew.min_samples > samples:
        raise DataError(
            f"{skew.clients} clients of at least {skew.min_samples} samples need "
            f"{skew.clients * skew.min_samples}; there are {samples}"
        )


def _too_uneven(kind: str, skew: Skew, samples: int, draws: int) -> DataError:
    return DataError(
        f"{kind} with concentration {skew.concentration:g} left one of {skew.clients} clients with "
        f"fewer than {skew.min_samples} of {samples} samples in all of {draws} draws; raise "
        "concentration, lower min_samples, take fewer clients, or another seed"
    )
