"""Figures of the three levels of imbalance: cases of a class, classes, clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbb.aggregation.merging import ClientBalanced
from fedbb.analysis.label_statistics import LabelStatistics
from fedbb.imbalance import (
    READINGS,
    Reading,
    balance_weights,
    class_shares,
    dispersion,
    effective_number,
)
from fedbb.losses.base import Loss
from fedbb.losses.logit_calibrated import Calibrated, Calibration
from fedbb.losses.pnb import PNB, ClassFactor, Scale, Weights, weigh
from fedbb.partition.label_distance import total_variation
from fedbb.records import FloatArray, IntArray, LabelCounts, Task

RARE = 10
"""A label set with fewer samples than this is rare."""
LISTED = 20


@dataclass(frozen=True)
class Settings:
    """The hyper-parameters an inspection assumes; the defaults are the paper's.

    Args:
        beta: smoothing of PNB, as are `tau`, `mu`, `class_factor` and `alpha_min`.
        tau: temperature of PNB.
        mu: factor on the loss, or "unit".
        gamma: weight of evenness against size in CBR.
        reading: how CBR measures dispersion.
        batch_size: of local training; smaller clients get a warning.
        saturation: 1 − β^n that the advice on β aims at for the largest class.
        class_factor: factor between classes of PNB.
        alpha_min: least α of PNB.
        margin: factor on FedLC's margins before PNB, as in fedbb-plus; None for none.
        label_margin: the same for multi-label data.

    Raises:
        ValueError: a value outside of its range.
    """

    beta: float = 0.9999
    tau: float = 1.0
    mu: Scale = 4.0
    gamma: float = 1.0
    reading: Reading = "share-std"
    batch_size: int = 32
    saturation: float = 0.5
    class_factor: ClassFactor = "alpha"
    alpha_min: float = 0.0
    margin: float | None = None
    label_margin: float = 0.0

    def __post_init__(self) -> None:
        _ = self.client_loss, self.weighting
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}")
        if not 0.0 < self.saturation < 1.0:
            raise ValueError(f"saturation must be between 0 and 1, not {self.saturation}")

    @property
    def loss(self) -> PNB:
        """PNB of these settings."""
        return PNB(self.beta, self.tau, self.mu, self.class_factor, self.alpha_min)

    @property
    def client_loss(self) -> Loss:
        """The loss a client trains with: PNB, behind calibrated logits where they are set."""
        if self.margin is None:
            return self.loss
        return Calibrated(self.loss, Calibration(self.margin, self.label_margin))

    @property
    def weighting(self) -> ClientBalanced:
        """CBR of these settings."""
        return ClientBalanced(self.gamma, self.reading)


@dataclass(frozen=True, eq=False)
class Cases:
    """Figures of each class (C,); the shares are (2, C), of positives and of negatives.

    If every case has the same loss, `raw` is the share of each in plain BCE or cross-entropy,
    `cased` with cases weighted by α, `classed` with PNB's factor between classes too. Softmax
    scores positives only and has one factor, so the last two are equal for multi-class data.
    """

    positive: FloatArray
    negative: FloatArray
    effective_positive: FloatArray
    effective_negative: FloatArray
    alpha_positive: FloatArray
    alpha_negative: FloatArray
    raw: FloatArray
    cased: FloatArray
    classed: FloatArray


def measure_cases(
    positive: FloatArray, negative: FloatArray, task: Task, settings: Settings
) -> Cases:
    """Return the figures of classes with these cases (C,), as one client that held all of them."""
    beta, tau = settings.beta, settings.tau
    weights = weigh(settings.loss, LabelCounts(positive, negative, samples=0), task)
    raw, cased, classed = loss_shares(positive, negative, weights, task)
    return Cases(
        positive,
        negative,
        effective_number(positive, beta, tau),
        effective_number(negative, beta, tau),
        weights.alpha_positive,
        weights.alpha_negative,
        raw,
        cased,
        classed,
    )


def loss_shares(
    positive: FloatArray, negative: FloatArray, weights: Weights, task: Task
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (raw, cased, classed), each (2, C) and summing to one unless all weights are zero."""
    counts = np.stack([positive, negative])
    classed = _normalize(np.stack([weights.positive, weights.negative]) * counts)
    if task is Task.MULTICLASS:
        raw = np.stack([positive, np.zeros_like(positive)])
        return _normalize(raw), classed, classed
    alphas = np.stack([weights.alpha_positive, weights.alpha_negative])
    return _normalize(counts), _normalize(alphas * counts), classed


def _normalize(values: FloatArray) -> FloatArray:
    total = values.sum()
    return np.asarray(values / total) if total > 0 else values


@dataclass(frozen=True)
class LabelSet:
    """Classes that occur together, and how many samples have exactly these."""

    classes: tuple[str, ...]
    samples: int


@dataclass(frozen=True)
class LabelSets:
    """How many label sets occur: `seen` of 2^`classes`, of which `rare` have few samples."""

    classes: int
    seen: int
    rare: int
    rare_samples: int
    largest: tuple[LabelSet, ...]


@dataclass(frozen=True, eq=False)
class Classes:
    """`shares` A / ΣA and `prevalence` A / (A + B) of each class, and figures of the shares.

    `ratio` is that of the largest class to the smallest that occurs; `gini` is 0 where all are
    equal; `entropy`, in bits, is at most log₂ C, and 2 to its power the `effective` classes.
    """

    shares: FloatArray
    prevalence: FloatArray
    ratio: float
    gini: float
    entropy: float
    effective: float
    absent: tuple[str, ...]
    sets: LabelSets | None


def measure_classes(counts: LabelStatistics) -> Classes:
    """Return the figures of the classes of all clients together."""
    positive, negative = counts.positive.sum(axis=0), counts.negative.sum(axis=0)
    shares = class_shares(positive)
    entropy = entropy_of(shares)
    absent = [name for name, count in zip(counts.classes, positive, strict=True) if count == 0]
    return Classes(
        shares,
        class_shares(positive, positive + negative),
        ratio_of(positive),
        gini_of(positive),
        entropy,
        2.0**entropy,
        tuple(absent),
        _sets(counts) if counts.task is Task.MULTILABEL else None,
    )


def ratio_of(counts: FloatArray) -> float:
    """Return the largest over the smallest number above zero; NaN where there is none.

    >>> ratio_of(np.array([5000.0, 0.0, 500.0]))
    10.0
    """
    held = counts[counts > 0]
    return float(held.max() / held.min()) if held.size else float("nan")


def gini_of(values: FloatArray) -> float:
    """Return Σᵢ Σⱼ |xᵢ − xⱼ| / (2 C Σ x), from sorted values.

    >>> gini_of(np.array([1.0, 1.0, 1.0, 1.0])), gini_of(np.array([0.0, 0.0, 0.0, 8.0]))
    (0.0, 0.75)
    """
    total = values.sum()
    if not total > 0:
        return 0.0
    rank = 2.0 * np.arange(1, values.size + 1) - values.size - 1.0
    return float(rank @ np.sort(values) / (values.size * total))


def entropy_of(shares: FloatArray) -> float:
    """Return −Σ p log₂ p, the entropy of shares in bits."""
    held = shares[shares > 0]
    return max(0.0, float(-(held * np.log2(held)).sum()))


def _sets(counts: LabelStatistics) -> LabelSets:
    rare = counts.set_sizes < RARE
    largest = tuple(
        LabelSet(tuple(counts.classes[place] for place in np.flatnonzero(marks)), int(size))
        for marks, size in zip(counts.sets[:LISTED], counts.set_sizes[:LISTED], strict=True)
    )
    return LabelSets(
        len(counts.classes),
        len(counts.sets),
        int(rare.sum()),
        int(counts.set_sizes[rare].sum()),
        largest,
    )


@dataclass(frozen=True, eq=False)
class Clients:
    """Figures of each client (K,).

    `dispersions` and `weights` (W of Eq. 12) are by reading; `by_size` are FedAvg's weights;
    `distance` is the total variation between a client's label distribution and that of all samples,
    `noise` its mean for as many samples drawn at random. `absent` counts the classes a client has
    no case of. `loss_weight` is the mean weight of its cases in its loss, with μ. `is_single` is
    true if no class has both cases there. `effective` is 1 / ΣW² of FedAvg and of each reading.
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


def measure_clients(counts: LabelStatistics, settings: Settings) -> Clients:
    """Return the figures of the clients under these settings."""
    by_size = counts.samples / counts.samples.sum()
    spreads = {reading: spread_of(counts, reading) for reading in READINGS}
    weights = {
        reading: balance_weights(spread, counts.samples, gamma=settings.gamma)
        for reading, spread in spreads.items()
    }
    whole = by_size @ counts.mixes
    return Clients(
        counts.clients,
        counts.samples,
        by_size,
        spreads,
        weights,
        total_variation(counts.mixes, whole),
        random_distance(whole, counts.samples),
        (counts.positive == 0).sum(axis=1),
        mean_weights(counts, settings),
        is_single(counts),
        {"fedavg": effective_clients(by_size)}
        | {reading: effective_clients(weight) for reading, weight in weights.items()},
    )


def is_single(counts: LabelStatistics) -> npt.NDArray[np.bool_]:
    """Return for each client whether no class has both cases, so that plain PNB has weight 0."""
    both = (counts.positive > 0) & (counts.negative > 0)
    return np.asarray(~both.any(axis=1))


def spread_of(counts: LabelStatistics, reading: str) -> FloatArray:
    """Return R of each client; a class of which it knows no label has no share to compare."""
    chosen: Reading = reading  # type: ignore[assignment]
    known = counts.positive + counts.negative
    spread = dispersion(counts.positive, known, reading=chosen)
    for client in np.flatnonzero((known == 0).any(axis=1)):
        seen = known[client] > 0
        spread[client] = dispersion(
            counts.positive[client, seen], known[client, seen], reading=chosen
        )
    return spread


def mean_weights(counts: LabelStatistics, settings: Settings) -> FloatArray:
    """Return the mean weight of each client's cases as its loss has it, μ included."""
    return settings.client_loss.mean_weights(counts.positive, counts.negative, counts.task)


def effective_clients(weights: FloatArray) -> float:
    """Return 1 / ΣW²: K for equal weights, 1 if a single client has all the weight."""
    return float(1.0 / (weights @ weights))


def random_distance(whole: FloatArray, samples: IntArray) -> FloatArray:
    """Return the mean distance to expect of clients drawn at random: ½ Σ √(2 p (1 − p) / (π n)).

    Each share's error is about normal with variance p (1 − p) / n, times the finite-population
    factor (N − n) / (N − 1), since the client is a part of the whole.
    """
    total = samples.sum()
    left = (total - samples) / max(int(total) - 1, 1)
    per_draw = np.sqrt(2.0 * whole * (1.0 - whole) / np.pi).sum() / 2
    return np.asarray(per_draw * np.sqrt(left / np.maximum(samples, 1)))
