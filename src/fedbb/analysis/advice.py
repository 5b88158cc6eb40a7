"""Warnings about clients and classes, and hyper-parameters by rule, from the counts alone.

docs/imbalance.md gives reasons and limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedbb.analysis.label_statistics import LabelStatistics
from fedbb.analysis.measures import Clients, Settings, mean_weights
from fedbb.imbalance import Reading, case_weights, class_shares
from fedbb.losses.pnb import SATURATED
from fedbb.records import FloatArray, IntArray, Task

OVERWEIGHED = 10.0
"""A client whose weight is this many times its share of the samples gets a warning."""
RANDOM = 1.5
"""Clients no farther from the whole than this many times chance count as drawn at random."""
NEARLY_ALL = 0.95
"""What holds for the classes of this share of a client's cases holds for the client."""
_NAMED = 4

Level = Literal["case", "class", "client"]


ALPHA_MIN = 0.01


@dataclass(frozen=True)
class Warning:
    """One finding: its kind for machines, the level it belongs to, and what to know about it."""

    kind: str
    level: Level
    text: str


def find_warnings(
    counts: LabelStatistics,
    clients: Clients,
    settings: Settings,
    patients: IntArray | None = None,
) -> tuple[Warning, ...]:
    """Return all that is found; `patients` (K,) counts those a client shares with another."""
    parts = (
        _patients(counts.clients, patients),
        _cases(counts, settings),
        _classes(counts),
        _clients(counts, clients, settings),
    )
    return tuple(warning for part in parts for warning in part)


def _cases(counts: LabelStatistics, settings: Settings) -> Iterator[Warning]:
    alpha, _ = case_weights(counts.positive, counts.negative, beta=settings.beta, tau=settings.tau)
    held = (counts.positive > 0) & (counts.negative > 0) & (counts.positive != counts.negative)
    prevalence = class_shares(counts.positive, counts.positive + counts.negative)
    beta = f"β = {settings.beta:.10g}" + ("" if settings.tau == 1 else f", τ = {settings.tau:g}")
    flat = _clients_with(np.abs(alpha - 0.5) < SATURATED, counts.positive * held)
    if 2 * flat >= len(held):
        yield Warning(
            "saturated",
            "case",
            f"{beta} saturates at {_part(flat, held)}: α is one half there, and PNB is the "
            "plain loss times a constant",
        )
    linear = _clients_with(np.abs(alpha - (1.0 - prevalence)) < SATURATED, counts.positive * held)
    if 2 * linear >= len(held):
        yield Warning(
            "unsmoothed",
            "case",
            f"{beta} smooths nothing at {_part(linear, held)}: α⁺ is 1 − prevalence there, the "
            "plain inverse frequency",
        )


def _clients_with(found: npt.NDArray[np.bool_], positive: FloatArray) -> int:
    """Return the number of clients at which something holds for the classes of nearly all cases.

    `positive` (K, C) are the cases of classes that have both kinds, unevenly.
    """
    total = positive.sum(axis=1)
    return int(((positive * found).sum(axis=1) >= NEARLY_ALL * total)[total > 0].sum())


def _part(number: int, held: npt.NDArray[np.bool_]) -> str:
    return f"{number} of {len(held)} clients" if len(held) > 1 else "these counts"


def _classes(counts: LabelStatistics) -> Iterator[Warning]:
    clients = (counts.positive > 0).sum(axis=0)
    absent = _names(counts.classes, clients == 0)
    if absent:
        text = f"no sample is of {absent}: nothing to learn from, and no AUC"
        yield Warning("class-absent", "class", text)
    alone = _names(counts.classes, clients == 1)
    if alone and len(counts.clients) > 1:
        yield Warning("class-alone", "class", f"only one client has a case of {alone}")
    full = (counts.negative.sum(axis=0) == 0) & (clients > 0)
    if full.any():
        text = f"every known label of {_names(counts.classes, full)} is positive: no AUC"
        yield Warning("class-full", "class", text)


def _clients(counts: LabelStatistics, clients: Clients, settings: Settings) -> Iterator[Warning]:
    unlabelled = (counts.positive + counts.negative).sum(axis=1) == 0
    idle = clients.is_single & ((clients.loss_weight == 0) | unlabelled)
    single = _names(clients.names, idle)
    if single:
        yield Warning(
            "single-class",
            "client",
            f"no class has both cases at {_client(single)}: PNB gives all cases weight 0, so these "
            "clients learn nothing (alpha_min above 0 changes that)",
        )
    small = _names(clients.names, clients.samples < settings.batch_size)
    if small:
        yield Warning(
            "small-client",
            "client",
            f"fewer samples than a batch of {settings.batch_size} at {_client(small)}: one step an "
            "epoch, and none with drop_last",
        )
    if len(counts.clients) > 1:
        yield from _weights(clients, settings)


def _weights(clients: Clients, settings: Settings) -> Iterator[Warning]:
    weights = clients.weights[settings.reading]
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(clients.by_size > 0, weights / clients.by_size, 0.0)
    over = times >= OVERWEIGHED
    if over.any():
        worst = int(np.argmax(times))
        yield Warning(
            "tiny-client",
            "client",
            f"CBR weighs {_client(_names(clients.names, over))} at least {OVERWEIGHED:g} times as "
            f"much as by size: client {clients.names[worst]} has {clients.samples[worst]:,} "
            f"samples, {clients.by_size[worst]:.2%} of all, and would weigh {weights[worst]:.1%}",
        )
    if looks_random(clients):
        yield Warning(
            "random-clients",
            "client",
            f"the clients' labels differ no more than those of random draws do (distance "
            f"{mean_distance(clients):.4f}): CBR would weigh chance",
        )


def mean_distance(clients: Clients) -> float:
    """Return the mean distance of the clients from the whole, each counting by its size."""
    return float(clients.by_size @ clients.distance)


def looks_random(clients: Clients) -> bool:
    """Whether the clients' labels are as near to the whole as those of random draws would be."""
    return mean_distance(clients) <= RANDOM * float(clients.by_size @ clients.noise)


def _patients(names: Sequence[str], shared: IntArray | None) -> Iterator[Warning]:
    if shared is not None and shared.any():
        who = _client(_names(names, shared > 0))
        text = f"patients are on several clients: {who} share some with others"
        yield Warning("shared-patients", "client", text)


def _names(names: Sequence[str], chosen: npt.NDArray[np.bool_]) -> str:
    """Return the chosen names, the first few of them and how many there are more."""
    places = np.flatnonzero(chosen)
    shown = ", ".join(names[place] for place in places[:_NAMED])
    more = len(places) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _client(names: str) -> str:
    return f"clients {names}" if ", " in names else f"client {names}"


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
