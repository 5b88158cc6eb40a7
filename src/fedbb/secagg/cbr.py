"""Client-balanced reweighting (CBR) over sums: weights and updates that each client computes.

From two sums over all clients each client derives its own weight. It then adds its weighted change
to a sum, so that the server sees the weighted mean and no single change. Nothing in here needs
cryptography.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbb.aggregation.merging import (
    BySamples,
    ClientBalanced,
    Merge,
    Weighting,
    average,
    clip_update,
    normalized_average,
)
from fedbb.aggregation.robust import Uniform
from fedbb.errors import PrivacyError
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, IntArray, ModelState, Tensors
from fedbb.secagg.dp import NoiseTerms, add_noise, clip_change
from fedbb.secagg.neighbours import Neighbourhood
from fedbb.state import select
from fedbb.statistics import Statistic

BITS = 40
"""Fractional bits of R⁻¹ in the sum, unless the sum would overflow."""

_SUM_BITS = 62
"""Bits that a sum of statistics may take in a ring of 2^64 with signed numbers."""

NONCE = 32
"""Random bytes without which a commitment to small integers could be guessed."""

_MASSES: dict[Merge, Callable[[ClientUpdate], float]] = {
    average: lambda update: 1.0,
    normalized_average: lambda update: update.effective_steps,
}
"""The divisor of a client's change before it is summed (a of FedNova)."""

DrawNoise = Callable[[int, float], FloatArray]
"""Returns this number of Gaussian numbers with this standard deviation, from a client's secret."""

SCALARS = 3
"""Numbers after the changes and the statistics: W·a, W and 1."""

NO_STATISTICS: Tensors = {}

Measured = Mapping[str, IntArray]
"""Integers that a client measures once, by name, of which everyone learns the sum."""

MOST_MEASURED = 2**32
"""The largest of them; their sum over any number of clients fits the ring."""


@dataclass(frozen=True)
class Terms:
    """How a weighting mixes evenness and size (Eq. 12), and how its sums are encoded.

    Args:
        gamma: the share of evenness in a weight.
        floor: a lower dispersion R is raised to this value.
        bits: fractional bits of R⁻¹ in the sum.
        uniform: whether R⁻¹ is 1 for every client that has samples, so that all weigh alike.
    """

    gamma: float
    floor: float
    bits: int = BITS
    uniform: bool = False


@dataclass(frozen=True)
class Sums:
    """The sums over the clients that took part: all that is revealed about their data.

    Args:
        samples: Σn.
        evenness: ΣR⁻¹.
        clients: the clients.
        measured: the sums of what else the recipe measures, such as label counts, in one row.
    """

    samples: int
    evenness: float
    clients: tuple[int, ...]
    measured: tuple[int, ...] = ()


@dataclass(frozen=True)
class Bounds:
    """The largest weight of a client, and the largest norm of its change (None: no bound)."""

    max_weight: float = 1.0
    max_norm: float | None = None


UNBOUND = Bounds()


@dataclass(frozen=True)
class Agreement:
    """What server and clients agree on before the first sum; nothing in it is secret.

    Args:
        terms: how weights follow from the sums.
        merge: how changes are combined.
        bounds: the bounds of a client's weight and change.
        recipe: the SHA-256 of the recipe, as far as results depend on it.
        rounds: how many rounds the recipe has; None for any number.
        noise: how changes are clipped and noised; None without differential privacy.
        graph: how many neighbours share a client's secrets; None if all clients of a sum do.
    """

    terms: Terms
    merge: Merge
    bounds: Bounds = UNBOUND
    recipe: str = ""
    rounds: int | None = None
    noise: NoiseTerms | None = None
    graph: Neighbourhood | None = None

    def __post_init__(self) -> None:
        check_linear(self.merge)


@dataclass(frozen=True)
class Contributor:
    """A client's own side of the sums; its sample count and dispersion never leave it.

    Args:
        info: its number, sample count and dispersion.
        agreement: what it agreed on with the server.
        measured: what else it adds to the sum before round 1, by name, such as its label counts.
    """

    info: ClientInfo
    agreement: Agreement
    measured: Measured = field(default_factory=dict)

    def statistics(self) -> IntArray:
        """Return what it adds to the sum before the first round."""
        row = flatten_measured(self.measured)
        if np.any(row < 0) or np.any(row > MOST_MEASURED):
            raise PrivacyError(f"a number that a client measured is not from 0 to {MOST_MEASURED}")
        return np.concatenate([declare(self.info, self.agreement.terms), row])

    def weight(self, sums: Sums) -> float:
        """Return its own weight; implausible sums are refused."""
        return own_weight(self.info, sums, self.agreement.terms)

    def vector(
        self,
        current: ModelState,
        update: ClientUpdate | None,
        sums: Sums,
        shapes: Tensors = NO_STATISTICS,
        draw_noise: DrawNoise | None = None,
        drawn: IntArray | None = None,
    ) -> FloatArray:
        """Return what it adds to a round's sum; without an update, only that it took part.

        Under differential privacy every client adds noise, also one without an update.

        Args:
            current: the model that it received.
            update: its update, with the statistics that are due.
            sums: the sums from which its weight follows.
            shapes: the names and shapes of the statistics that are due. They are not weighted.
            draw_noise: draws the noise of differential privacy.
            drawn: the places of the parameters that may change; None for all. The others stay out
                of the sum, and out of the noise.
        """
        agreed = self.agreement
        weight = 0.0 if update is None else self.weight(sums)
        vector = (
            abstain(current)
            if update is None
            else contribute(current, update, weight, agreed.merge, agreed.bounds)
        )
        if drawn is not None:
            vector = select_drawn(vector, drawn, count_parameters(current))
        if agreed.noise is not None:
            if draw_noise is None or shapes:
                raise PrivacyError("differential privacy needs noise, and covers no statistics")
            terms, change = agreed.noise, vector[:-SCALARS]
            clipped = clip_change(change, min(weight, agreed.bounds.max_weight) * terms.clip)
            noise = draw_noise(len(change), terms.deviation)
            vector[:-SCALARS] = add_noise(clipped, noise, terms.sensitivity)
        if not shapes:
            return vector
        found = flatten_statistics({} if update is None else update.statistics, shapes)
        return np.concatenate([vector[:-SCALARS], found, vector[-SCALARS:]])

    def measured_vector(
        self, statistics: tuple[Statistic, ...], found: Tensors | None, shapes: Tensors, sums: Sums
    ) -> FloatArray:
        """Return what it adds to the sum of statistics of the merged model, and that it took part.

        Args:
            statistics: the statistics that are due.
            found: its values by full name; None if it has no samples.
            shapes: the names and shapes of all of them.
            sums: the sums from which the scale of the numbers follows.
        """
        for statistic in statistics if found is not None else ():
            fault = statistic.fault(select(found or {}, f"{statistic.name}."))
            if fault is not None:
                raise PrivacyError(f"statistic {statistic.name} of this client: {fault}")
        values = flatten_statistics(found or {}, shapes)
        return np.append(np.ldexp(values, -sum_exponent(sums.samples)), 1.0)


def sum_exponent(samples: int) -> int:
    """Return the least e with 2^e of at least the number of samples of all clients.

    Sums over samples are divided by 2^e before they are rounded to fixed point. They are then at
    most as large as the numbers of one sample, and counts stay exact, for e below the number of
    fractional bits.

    >>> sum_exponent(1000), sum_exponent(1024), sum_exponent(1025)
    (10, 10, 11)
    """
    return max(samples - 1, 0).bit_length()


def split_measured_statistics(
    totals: FloatArray, shapes: Tensors, samples: int
) -> dict[str, Tensor]:
    """Return the sums of statistics of the merged model by name, without the number of clients."""
    whole = np.ldexp(totals[:-1], sum_exponent(samples))
    return split_statistics(np.append(whole, np.zeros(SCALARS)), shapes)[1]


def terms_of(weighting: Weighting, clients: int) -> Terms:
    """Return the terms of a weighting; refuse one that secure sums do not support.

    Args:
        weighting: the method's weighting.
        clients: how many clients take part.

    Returns:
        The terms under which clients weigh themselves.

    Raises:
        PrivacyError: if a weight does not follow from a client's own numbers and two sums.
    """
    match weighting:
        case BySamples():
            return Terms(0.0, 1.0)
        case ClientBalanced(gamma=gamma, floor=floor):
            return Terms(gamma, floor, fitting_bits(clients, floor))
        case Uniform():
            return Terms(1.0, 1.0, fitting_bits(clients, 1.0), uniform=True)
    raise PrivacyError(
        f"clients cannot weigh themselves by {type(weighting).__name__} from sums alone; secure "
        "aggregation works with BySamples, ClientBalanced and Uniform"
    )


def fitting_bits(clients: int, floor: float) -> int:
    """Return how many fractional bits R⁻¹ may have so that a sum of clients/floor fits the ring."""
    bits = min(BITS, math.floor(_SUM_BITS - math.log2(clients / floor)))
    if bits < 0:
        raise PrivacyError(
            f"R⁻¹ of {clients} clients with floor = {floor:g} is too large for a secure sum; "
            "use a larger method.options.floor"
        )
    return bits


def declare(info: ClientInfo, terms: Terms) -> IntArray:
    """Return, at the client, what it adds to the sums: (n, R⁻¹ in fixed point, 1)."""
    scaled = round(evenness(info, terms) * 2**terms.bits)
    return np.array([info.samples, scaled, 1], dtype=np.int64)


def evenness(info: ClientInfo, terms: Terms) -> float:
    """Return R⁻¹ with R raised to the floor; 0 without samples, or if evenness has no weight."""
    if info.samples == 0 or terms.gamma == 0.0:
        return 0.0
    if terms.uniform:
        return 1.0
    if info.dispersion is None or not math.isfinite(info.dispersion) or info.dispersion < 0:
        raise PrivacyError(f"client {info.client} has no valid dispersion for its weight")
    return 1.0 / max(info.dispersion, terms.floor)


def commitment(nonce: bytes, declared: IntArray) -> str:
    """Return SHA-256(nonce‖values), which binds a client to its numbers for a later audit."""
    return hashlib.sha256(nonce + declared.astype("<i8").tobytes()).hexdigest()


def flatten_measured(measured: Measured) -> IntArray:
    """Return integers in one row, ordered by name."""
    rows = [np.asarray(values, np.int64).reshape(-1) for _, values in sorted(measured.items())]
    return np.concatenate([np.empty(0, np.int64), *rows])


def split_measured(row: Sequence[int], like: Measured) -> dict[str, IntArray]:
    """Return the integers of a row by name, in the shapes of others."""
    found: dict[str, IntArray] = {}
    start = 0
    for name, values in sorted(like.items()):
        part = np.array(row[start : start + values.size], dtype=np.int64)
        found[name], start = part.reshape(values.shape), start + values.size
    return found


def read_sums(totals: IntArray, clients: tuple[int, ...], terms: Terms) -> Sums:
    """Return the statistics in a secure sum; refuse one that these clients cannot have made."""
    samples, scaled, number, *measured = (int(total) for total in totals)
    sums = Sums(samples, scaled / 2**terms.bits, clients, tuple(measured))
    if number != len(clients):
        raise PrivacyError(f"the statistics are of {number} clients where {len(clients)} took part")
    check_plausible(sums, terms)
    return sums


def plain_sums(sums: Sums) -> list[Any]:
    """Return sums as JSON holds them; what is measured is left out if it is nothing."""
    plain: list[Any] = [sums.samples, sums.evenness, list(sums.clients)]
    return [*plain, list(sums.measured)] if sums.measured else plain


def read_plain_sums(plain: Sequence[Any]) -> Sums:
    """Return what `plain_sums` was given."""
    samples, evenness, clients, *measured = plain
    return Sums(
        int(samples), float(evenness), tuple(clients), tuple(measured[0]) if measured else ()
    )


def check_plausible(sums: Sums, terms: Terms) -> None:
    """Refuse sums out of the bounds of clamped statistics; every client checks this too."""
    most = len(sums.clients) / terms.floor
    # Each addend is rounded once.
    if not 0 <= sums.evenness <= most + len(sums.clients) / 2**terms.bits:
        raise PrivacyError(
            f"ΣR⁻¹ = {sums.evenness:g} of {len(sums.clients)} clients is above {most:g}, the limit "
            f"for R of at least {terms.floor:g}: some client declares more than allowed"
        )
    if sums.samples <= 0:
        raise PrivacyError("no client has samples, so there is nothing to weigh")
    if not all(0 <= total <= len(sums.clients) * MOST_MEASURED for total in sums.measured):
        raise PrivacyError(
            f"a sum of what {len(sums.clients)} clients measured is not from 0 to "
            f"{MOST_MEASURED} for each: some client declares more than allowed"
        )


def own_weight(info: ClientInfo, sums: Sums, terms: Terms) -> float:
    """Return, at the client, W = γ·R⁻¹/ΣR⁻¹ + (1 − γ)·n/Σn (Eq. 12)."""
    check_plausible(sums, terms)
    even = evenness(info, terms)
    by_evenness = terms.gamma * even / sums.evenness if even > 0 else 0.0
    return by_evenness + (1.0 - terms.gamma) * info.samples / sums.samples


def check_linear(merge: Merge) -> None:
    """Refuse a merge that is not a function of sums over clients."""
    if merge not in _MASSES:
        known = ", ".join(getattr(known, "__name__", str(known)) for known in _MASSES)
        raise PrivacyError(
            f"the merge {getattr(merge, '__name__', merge)!s} needs each client's model, which "
            f"secure aggregation hides; it works with {known}"
        )


def contribute(
    current: ModelState,
    update: ClientUpdate,
    weight: float,
    merge: Merge,
    bounds: Bounds = UNBOUND,
) -> FloatArray:
    """Return, at the client, (W/a·Δ of parameters, W·Δ of float buffers, W·a, W, 1).

    a is 1 for a plain average; integer buffers are left out. The weight of Δ is cut to its bound,
    but not the weight in the sums that everything is divided by: the part that is cut off moves
    the model nowhere.
    """
    check_linear(merge)
    mass = _MASSES[merge](update)
    most = bounds.max_norm
    trained = update.state if most is None else clip_update(current, update.state, most)
    share = min(weight, bounds.max_weight)
    params = _change(current.params, trained.params)
    buffers = _change(_floats(current.buffers), trained.buffers)
    scalars = [weight * mass, weight, 1.0]
    return np.concatenate([params * (share / mass), buffers * share, scalars])


def abstain(current: ModelState) -> FloatArray:
    """Return the vector of a client without samples: it only counts the client."""
    entries = (*current.params.values(), *_floats(current.buffers).values())
    nothing = np.zeros(sum(tensor.numel() for tensor in entries) + SCALARS)
    nothing[-1] = 1.0
    return nothing


def count_parameters(current: ModelState) -> int:
    """Return how many of the numbers of a vector are changes of parameters."""
    return sum(tensor.numel() for tensor in current.params.values())


def select_drawn(vector: FloatArray, drawn: IntArray, parameters: int) -> FloatArray:
    """Return a vector with the changes of the drawn parameters alone, before all else in it.

    >>> select_drawn(np.array([0.0, 7.0, 0.0, 1.0]), np.array([1]), 3).tolist()
    [7.0, 1.0]
    """
    return np.concatenate([vector[drawn], vector[parameters:]])


def spread_drawn(vector: FloatArray, drawn: IntArray, parameters: int) -> FloatArray:
    """Return the vector that `select_drawn` was given; parameters that were not drawn have zeros.

    >>> spread_drawn(np.array([7.0, 1.0]), np.array([1]), 3).tolist()
    [0.0, 7.0, 0.0, 1.0]
    """
    changes = np.zeros(parameters)
    changes[drawn] = vector[: len(drawn)]
    return np.concatenate([changes, vector[len(drawn) :]])


def flatten_statistics(found: Tensors, shapes: Tensors) -> FloatArray:
    """Return statistics in one vector, ordered by name; those that are missing are zero."""
    parts = [
        found[name].double().reshape(-1).numpy() if name in found else np.zeros(shape.numel())
        for name, shape in sorted(shapes.items())
    ]
    return np.concatenate([np.empty(0), *parts])


def split_statistics(totals: FloatArray, shapes: Tensors) -> tuple[FloatArray, dict[str, Tensor]]:
    """Return the part of a sum that `combine` takes, and the sums of the statistics by name."""
    length = sum(shape.numel() for shape in shapes.values())
    start = len(totals) - SCALARS - length
    found: dict[str, Tensor] = {}
    place = start
    for name, shape in sorted(shapes.items()):
        part = totals[place : place + shape.numel()].copy()
        found[name] = torch.from_numpy(part).reshape(shape.shape)
        place += shape.numel()
    return np.concatenate([totals[:start], totals[len(totals) - SCALARS :]]), found


def combine(current: ModelState, totals: FloatArray) -> ModelState:
    """Return, at the server, the next state: θ + ΣW·a/ΣW · ΣW/a·Δ/ΣW, and buffers averaged.

    Integer buffers keep the server's values. If the clients' weights sum to 0, nothing changes.
    """
    mass, weight, _ = totals[-SCALARS:]
    if weight <= 0:
        return current
    floats = _floats(current.buffers)
    cut = sum(tensor.numel() for tensor in current.params.values())
    params = _moved(current.params, totals[:cut] * (mass / weight / weight))
    buffers = _moved(floats, totals[cut:-SCALARS] / weight)
    return ModelState(params, {**current.buffers, **buffers})


def _floats(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def _change(current: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> FloatArray:
    """Return θ_k − θ of all entries in one vector, ordered by name.

    A state from a file may have its entries in another order than one from a network.
    """
    parts = [
        (trained[name].double() - current[name].double()).reshape(-1).numpy()
        for name in sorted(current)
    ]
    return np.concatenate([np.empty(0), *parts])


def _moved(current: Mapping[str, Tensor], change: FloatArray) -> dict[str, Tensor]:
    moved, start = dict(current), 0
    for name in sorted(current):
        tensor = current[name]
        part = torch.from_numpy(change[start : start + tensor.numel()]).reshape(tensor.shape)
        moved[name] = (tensor.double() + part).to(tensor.dtype)
        start += tensor.numel()
    return moved
