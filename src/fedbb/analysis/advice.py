"""Hyper-parameters by rule, from the counts alone; docs/imbalance.md gives reasons and limits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedbb.analysis.label_statistics import LabelStatistics
from fedbb.analysis.measures import Clients, Settings, mean_weights
from fedbb.analysis.warnings import looks_random
from fedbb.imbalance import Reading
from fedbb.records import FloatArray, IntArray, Task

ALPHA_MIN = 0.01


@dataclass(frozen=True)
class Advice:
    """What to set for FedBB, each with the reason why."""

    beta: float
    tau: float
    mu: float
    gamma: float
    reading: Reading
    alpha_min: float
    reasons: tuple[str, ...]

    @property
    def options(self) -> dict[str, float | str]:
        """The options of the method fedbb, as a recipe names them."""
        given: dict[str, float | str] = {
            "beta": self.beta,
            "tau": self.tau,
            "mu": self.mu,
            "gamma": self.gamma,
            "reading": self.reading,
        }
        return given | ({"alpha_min": self.alpha_min} if self.alpha_min else {})


def advise(counts: LabelStatistics, clients: Clients, settings: Settings) -> Advice:
    """Return the settings that the rules make of these counts."""
    beta, why_beta = _choose_beta(counts, settings.saturation)
    alpha_min, why_floor = _choose_floor(clients)
    mu, why_mu = _choose_mu(counts, Settings(beta=beta, mu=1.0))
    gamma, why_gamma = _choose_gamma(clients)
    reasons = (
        why_beta,
        "τ = 1: α depends on β^(1/τ) alone, so any other τ is this one with another β",
        why_mu,
        why_gamma,
        "reading share-std: Definition 3; bounded, and the same for a client ten times as large",
        *why_floor,
    )
    return Advice(beta, 1.0, mu, gamma, "share-std", alpha_min, reasons)


def saturating_beta(count: float, saturation: float) -> float:
    """Return the β with 1 − β^n = s, rounded so that 1 − β has two digits.

    >>> saturating_beta(1000, 0.5)
    0.99931
    """
    if count < 1:
        return 0.0
    rest = -math.expm1(math.log1p(-saturation) / count)
    digits = 1 - math.floor(math.log10(rest))
    return round(1.0 - rest, digits)


def middle_value(values: FloatArray, samples: IntArray) -> float:
    """Return the median of the clients' values, each client counting by its samples."""
    order = np.argsort(values, kind="stable")
    passed = np.cumsum(samples[order])
    return float(values[order][np.searchsorted(passed, passed[-1] / 2)])


def _choose_beta(counts: LabelStatistics, saturation: float) -> tuple[float, str]:
    count = middle_value(counts.positive.max(axis=1), counts.samples)
    beta = saturating_beta(count, saturation)
    reason = (
        f"β = {beta:.10g}: the largest class of the median client, {count:g} cases, then has "
        f"{saturation:.0%} of the largest effective number (1 − β^n = {saturation:g})"
    )
    return beta, reason


def _choose_mu(counts: LabelStatistics, settings: Settings) -> tuple[float, str]:
    cases = counts.positive.sum(axis=1)
    if counts.task is Task.MULTILABEL:
        cases = cases + counts.negative.sum(axis=1)
    weights = mean_weights(counts, settings)
    mean = float(weights @ cases / cases.sum()) if cases.sum() > 0 else 1.0
    if not mean > 0:
        return 1.0, "μ = 1: no client has a class with both cases, so PNB has nothing to scale"
    mu = float(f"{1.0 / mean:.3g}")
    return mu, f"μ = {mu:g}: the mean weight is one, so that the learning rate keeps its meaning"


def _choose_gamma(clients: Clients) -> tuple[float, str]:
    number = int((clients.samples > 0).sum())
    if number < 2:
        return 0.0, "γ = 0: a single client leaves nothing to weigh"
    if looks_random(clients):
        return 0.0, "γ = 0: the clients' labels differ no more than random draws do; go by size"
    even = clients.effective["fedavg"]
    gamma = round(even / number, 2)
    reason = (
        f"γ = {gamma:g}: sizes are equivalent to {even:.1f} equal clients of {number}; the more "
        "they differ, the more size must count, or tiny clients dominate"
    )
    return gamma, reason


def _choose_floor(clients: Clients) -> tuple[float, tuple[str, ...]]:
    number = int(clients.is_single.sum())
    if not number:
        return 0.0, ()
    reason = f"alpha_min = {ALPHA_MIN:g}: {number} clients of one class would learn nothing"
    return ALPHA_MIN, (reason,)
