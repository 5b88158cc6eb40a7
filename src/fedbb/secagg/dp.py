"""Differential privacy of model changes: clipping, the noise of each client, Rényi accounting.

Each client clips its change, which covers parameters and floating-point buffers, and adds Gaussian
noise before the secure sum. The sum has the noise of the Gaussian mechanism; nobody sees a change
with less noise than the sum has, as long as the clients of a least cohort add theirs. Statistics of
CBR stay exact: noise on them would change the weights, which the paper rejects.

Nothing in here needs cryptography, so that the privacy loss of a run can be computed anywhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt, Lt

from fedbb._util.constraints import STRICT_TABLE, Positive
from fedbb.records import FloatArray

GRID_BITS = 40
"""Fractional bits of the fixed-point numbers that changes are rounded to before noise is added."""

ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(11, 64), 80, 96, 128, 256, 512)
"""Orders α of Rényi divergence over which the privacy loss is minimized."""

Delta = Annotated[float, Gt(0), Lt(1)]


@dataclass(frozen=True)
class DifferentialPrivacy:
    """The Gaussian mechanism on the sum of the clients' changes: the section `dp` of a recipe.

    Attributes:
        clip: Largest L2 norm of a client's change, over parameters and floating-point buffers.
        noise: Noise multiplier: the standard deviation of the noise of a sum, as a multiple of
            the largest contribution of a client, `clip` times `defense.max_weight`.
        delta: The probability δ for which ε is reported; well below one by the number of clients.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    clip: Positive
    noise: Positive
    delta: Delta = 1e-5


@dataclass(frozen=True)
class NoiseTerms:
    """What the clients of a run agree on to make the noise of a sum.

    Args:
        clip: the largest norm of a change.
        sensitivity: the largest norm of a weighted change, which one client adds to a sum.
        multiplier: the standard deviation of the sum's noise divided by the sensitivity.
        least: the fewest clients of a sum; each adds noise as if there were no more.
        delta: the probability δ for which ε is reported.
        rate: the share of the clients that take part in a round.
    """

    clip: float
    sensitivity: float
    multiplier: float
    least: int
    delta: float = 1e-5
    rate: float = 1.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise of one client."""
        return self.multiplier * self.sensitivity / math.sqrt(self.least)


def clip_change(change: FloatArray, most: float) -> FloatArray:
    """Return a change of at most this L2 norm, in the same direction.

    >>> clip_change(np.array([3.0, 4.0]), 1.0).tolist()
    [0.6000000000000001, 0.8]
    """
    norm = float(np.linalg.norm(change))
    return change if norm <= most else change * (most / norm)


def add_noise(weighted: FloatArray, noise: FloatArray, sensitivity: float) -> FloatArray:
    """Return a weighted change with noise; it is first rounded towards zero to the grid.

    The rounded change has no larger norm than the change. What is added to it is rounded to the
    same grid by the secure sum, whose noise is therefore a rounded Gaussian: with 40 fractional
    bits its steps are far below any useful deviation.
    """
    norm = float(np.linalg.norm(weighted))
    # Rounding errors of clipping and weighting must not exceed what is accounted for.
    bounded = weighted if norm <= sensitivity else weighted * (sensitivity / norm)
    return np.ldexp(np.trunc(np.ldexp(bounded, GRID_BITS)), -GRID_BITS) + noise


def gaussian_rdp(noise: float, order: float) -> float:
    """Return the Rényi divergence of the Gaussian mechanism (Mironov 2017, Corollary 3)."""
    return order / (2 * noise**2)


def sampled_gaussian_rdp(rate: float, noise: float, order: int) -> float:
    """Return that of the Gaussian mechanism on a Poisson sample (Mironov et al. 2019, Eq. 3.3).

    Args:
        rate: the probability that a client is in the sample.
        noise: the noise multiplier.
        order: an integer of at least 2.
    """
    if rate >= 1:
        return gaussian_rdp(noise, order)
    terms = [
        _log_binomial(order, k)
        + k * math.log(rate)
        + (order - k) * math.log1p(-rate)
        + (k * k - k) / (2 * noise**2)
        for k in range(order + 1)
    ]
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def epsilon_of(divergences: Sequence[float], orders: Sequence[float], delta: float) -> float:
    """Return the least ε that Rényi divergences give for δ (Canonne et al. 2020, Prop. 12)."""
    bounds = [
        divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        for divergence, order in zip(divergences, orders, strict=True)
    ]
    return max(0.0, min(bounds))


def epsilon(noise: float, rounds: int, delta: float, rate: float = 1.0) -> float:
    """Return ε of this number of rounds.

    Args:
        noise: the noise multiplier.
        rounds: how many sums a client may be in.
        delta: the probability δ.
        rate: the probability that a client is in the sample of a round; below 1 it counts only
            against those who do not know who took part.

    Returns:
        ε, 0 without a round.
    """
    if rounds == 0:
        return 0.0
    if rate >= 1:
        found = [rounds * gaussian_rdp(noise, order) for order in ORDERS]
        return epsilon_of(found, ORDERS, delta)
    whole = [int(order) for order in ORDERS if order == int(order) and order >= 2]
    found = [rounds * sampled_gaussian_rdp(rate, noise, order) for order in whole]
    return epsilon_of(found, whole, delta)


def most_rounds(groups: Iterable[tuple[int, Sequence[int]]]) -> int:
    """Return in how many rounds the client took part that took part most often.

    Args:
        groups: the number of each round and the clients of its sum; a round that was repeated
            after a crash has the same noise, and counts once.
    """
    taken = {(number, client) for number, clients in groups for client in clients}
    return max(Counter(client for _, client in taken).values(), default=0)


def _log_binomial(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
