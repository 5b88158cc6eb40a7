"""A client's own side of a private run: what it knows of itself, and what it adds to a sum."""

from __future__ import annotations

from dataclasses import dataclass

from fedbb.aggregation.merging import Merge
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, IntArray, ModelState
from fedbb.secagg.contribution import UNBOUND, Bounds, abstain, check_linear, contribute
from fedbb.secagg.statistics import Sums, Terms, declare, own_weight


@dataclass(frozen=True)
class Agreement:
    """What server and clients agree on before the first sum; nothing in it is secret."""

    terms: Terms
    merge: Merge
    bounds: Bounds = UNBOUND

    def __post_init__(self) -> None:
        check_linear(self.merge)


@dataclass(frozen=True)
class Member:
    """A client that takes part: its card never leaves it."""

    info: ClientInfo
    agreement: Agreement

    def statistics(self) -> IntArray:
        """Return what it adds to the sum before the first round."""
        return declare(self.info, self.agreement.terms)

    def weight(self, sums: Sums) -> float:
        """Return how much it counts, by its own reckoning; implausible sums are refused."""
        return own_weight(self.info, sums, self.agreement.terms)

    def part(self, current: ModelState, update: ClientUpdate | None, sums: Sums) -> FloatArray:
        """Return what it adds to a round's sum; without an update, only that it took part."""
        if update is None:
            return abstain(current)
        agreed = self.agreement
        return contribute(current, update, self.weight(sums), agreed.merge, agreed.bounds)
