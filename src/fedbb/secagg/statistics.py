"""How much each client counts, computed by the client itself from two sums over all of them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from fedbb.aggregation.weighting import BySamples, ClientBalanced, Weighting
from fedbb.errors import PrivacyError
from fedbb.records import ClientInfo, IntArray

BITS = 40
"""Binary places of R⁻¹ in the sum, unless the sum would not fit."""

_ROOM = 62
"""Bits that a sum of statistics may take in a ring of 2^64 with signed numbers."""

NONCE = 32
"""Random bytes without which a commitment to small whole numbers could be guessed."""


@dataclass(frozen=True)
class Terms:
    """How a weighting mixes evenness and size (Eq. 12), and how its sums are written.

    `floor` is the least R taken into account; `bits` are the binary places of R⁻¹.
    """

    gamma: float
    floor: float
    bits: int = BITS


@dataclass(frozen=True)
class Sums:
    """Σn and ΣR⁻¹ over the clients that took part: all that is ever told of their data."""

    samples: int
    evenness: float
    clients: tuple[int, ...]


def terms_of(weighting: Weighting, clients: int) -> Terms:
    """Return the terms under which so many clients are weighed, or refuse the weighting by name."""
    match weighting:
        case BySamples():
            return Terms(0.0, 1.0)
        case ClientBalanced(gamma=gamma, floor=floor):
            return Terms(gamma, floor, fitting_bits(clients, floor))
    raise PrivacyError(
        f"clients cannot weigh themselves by {type(weighting).__name__} from sums alone; secure "
        "aggregation works with BySamples and ClientBalanced"
    )


def fitting_bits(clients: int, floor: float) -> int:
    """Return how many binary places R⁻¹ may have so that a sum of clients/floor fits the ring."""
    bits = min(BITS, math.floor(_ROOM - math.log2(clients / floor)))
    if bits < 0:
        raise PrivacyError(
            f"R⁻¹ of {clients} clients with floor = {floor:g} is too large for a secure sum; "
            "a larger method.options.floor helps"
        )
    return bits


def declare(info: ClientInfo, terms: Terms) -> IntArray:
    """Return, at the client, what it adds to the sums: (n, R⁻¹ in fixed point, 1)."""
    scaled = round(evenness(info, terms) * 2**terms.bits)
    return np.array([info.samples, scaled, 1], dtype=np.int64)


def evenness(info: ClientInfo, terms: Terms) -> float:
    """Return R⁻¹ with R raised to the floor; 0 without samples, or where evenness is not asked."""
    if info.samples == 0 or terms.gamma == 0.0:
        return 0.0
    if info.dispersion is None or not math.isfinite(info.dispersion) or info.dispersion < 0:
        raise PrivacyError(f"client {info.client} has no dispersion to be weighed by")
    return 1.0 / max(info.dispersion, terms.floor)


def commitment(nonce: bytes, declared: IntArray) -> str:
    """Return SHA-256(nonce‖values), by which an auditor can later hold a client to its numbers."""
    return hashlib.sha256(nonce + declared.astype("<i8").tobytes()).hexdigest()


def read_sums(totals: IntArray, clients: tuple[int, ...], terms: Terms) -> Sums:
    """Return what a secure sum tells, or refuse one that these clients cannot have added up."""
    samples, scaled, number = (int(total) for total in totals)
    sums = Sums(samples, scaled / 2**terms.bits, clients)
    if number != len(clients):
        raise PrivacyError(f"the statistics are of {number} clients where {len(clients)} took part")
    check_plausible(sums, terms)
    return sums


def check_plausible(sums: Sums, terms: Terms) -> None:
    """Refuse sums out of the bounds that clamped statistics keep; every client checks this too."""
    most = len(sums.clients) / terms.floor
    # Each addend is rounded once.
    if not 0 <= sums.evenness <= most + len(sums.clients) / 2**terms.bits:
        raise PrivacyError(
            f"ΣR⁻¹ = {sums.evenness:g} of {len(sums.clients)} clients is above {most:g}, what R of "
            f"at least {terms.floor:g} allows: some client declares more than it may"
        )
    if sums.samples <= 0:
        raise PrivacyError("no client holds a sample, so there is nothing to weigh")


def own_weight(info: ClientInfo, sums: Sums, terms: Terms) -> float:
    """Return, at the client, W = γ·R⁻¹/ΣR⁻¹ + (1 − γ)·n/Σn (Eq. 12)."""
    check_plausible(sums, terms)
    even = evenness(info, terms)
    by_evenness = terms.gamma * even / sums.evenness if even > 0 else 0.0
    return by_evenness + (1.0 - terms.gamma) * info.samples / sums.samples
