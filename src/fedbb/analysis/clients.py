"""Level three: clients against each other, and what CBR would make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbb.analysis.settings import Settings
from fedbb.analysis.tally import Tally
from fedbb.imbalance.cases import case_weights
from fedbb.imbalance.clients import READINGS, Reading, balance_weights, dispersion
from fedbb.records import FloatArray, IntArray, Task


@dataclass(frozen=True, eq=False)
class Clients:
    """Figures of each client (K,).

    `dispersions` and `weights` (W of Eq. 12) are by reading; `by_size` are FedAvg's weights;
    `distance` is the total variation ½ Σ|p_k − p| between a client's label mix and that of all,
    `noise` what it would be on average for as many samples drawn at random. `absent` counts the
    classes a client has no case of, `loss_weight` is its mean PNB weight with μ, `is_single` says
    that no class has both cases there. `effective` is 1 / ΣW² of FedAvg and of each reading.
    """

    names: tuple[str, ...]
    samples: IntArray
    by_size: FloatArray
    dispersions: Mapping[str, FloatArray]
    weights: Mapping[str, FloatArray]
    distance: FloatArray
    noise: FloatArray
    absent: IntArray
    loss_weight: FloatArray
    is_single: npt.NDArray[np.bool_]
    effective: Mapping[str, float]


def measure_clients(tally: Tally, settings: Settings) -> Clients:
    """Return the figures of the clients under these settings."""
    by_size = tally.samples / tally.samples.sum()
    spreads = {reading: spread_of(tally, reading) for reading in READINGS}
    weights = {
        reading: balance_weights(spread, tally.samples, gamma=settings.gamma)
        for reading, spread in spreads.items()
    }
    whole = by_size @ tally.mixes
    return Clients(
        tally.clients,
        tally.samples,
        by_size,
        spreads,
        weights,
        np.abs(tally.mixes - whole).sum(axis=1) / 2,
        random_distance(whole, tally.samples),
        (tally.positive == 0).sum(axis=1),
        mean_weights(tally, settings),
        is_single(tally),
        {"fedavg": effective_clients(by_size)}
        | {reading: effective_clients(weight) for reading, weight in weights.items()},
    )


def is_single(tally: Tally) -> npt.NDArray[np.bool_]:
    """Tell of each client whether no class has both cases there, so that PNB teaches it nothing."""
    both = (tally.positive > 0) & (tally.negative > 0)
    return np.asarray(~both.any(axis=1))


def spread_of(tally: Tally, reading: str) -> FloatArray:
    """Return R of each client; a class of which it knows no label has no share to compare."""
    chosen: Reading = reading  # type: ignore[assignment]
    known = tally.positive + tally.negative
    spread = dispersion(tally.positive, known, reading=chosen)
    for client in np.flatnonzero((known == 0).any(axis=1)):
        seen = known[client] > 0
        spread[client] = dispersion(
            tally.positive[client, seen], known[client, seen], reading=chosen
        )
    return spread


def mean_weights(tally: Tally, settings: Settings) -> FloatArray:
    """Return the mean PNB weight of each client's cases, μ included; one where it has no case."""
    positive, negative = tally.positive, tally.negative
    alpha, other = case_weights(positive, negative, beta=settings.beta, tau=settings.tau)
    if tally.task is Task.MULTICLASS:
        total, cases = (alpha * positive).sum(axis=1), positive.sum(axis=1)
    else:
        total = (alpha * (alpha * positive + other * negative)).sum(axis=1)
        cases = (positive + negative).sum(axis=1)
    mean = np.divide(total, cases, out=np.ones_like(total), where=cases > 0)
    if settings.mu == "unit":
        return np.where(mean > 0, 1.0, 0.0)
    return np.asarray(settings.mu * mean)


def effective_clients(weights: FloatArray) -> float:
    """Return 1 / ΣW²: K where all count alike, 1 where one counts alone."""
    return float(1.0 / (weights @ weights))


def random_distance(whole: FloatArray, samples: IntArray) -> FloatArray:
    """Return the mean distance to expect of clients drawn at random: ½ Σ √(2 p (1 − p) / (π n)).

    Each share's error is about normal with variance p (1 − p) / n, times the finite-population
    factor (N − n) / (N − 1), since the client is drawn from the very whole.
    """
    total = samples.sum()
    left = (total - samples) / max(int(total) - 1, 1)
    per_draw = np.sqrt(2.0 * whole * (1.0 - whole) / np.pi).sum() / 2
    return np.asarray(per_draw * np.sqrt(left / np.maximum(samples, 1)))
