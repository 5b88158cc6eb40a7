"""Fault tolerance of a round: failed clients, late replies, invalid and Byzantine updates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from fedbb._util.constraints import STRICT_TABLE, Count, Fraction, Positive
from fedbb.aggregation.robust import Krum
from fedbb.rounds.filters import ClipFilter, KrumFilter, UpdateFilter, ValidUpdates, accept_all

RobustRule = Literal["clip", "median", "trimmed-mean", "krum", "multi-krum"]
"""The Byzantine-robust aggregation rules that a recipe may name."""


@dataclass(frozen=True)
class RoundPolicy:
    """What a round tolerates: the section `defense` of a recipe.

    Attributes:
        quorum: Fraction of the chosen clients whose updates must be valid.
        attempts: How often a round is tried before the run stops.
        deadline: Seconds that a client of a deployed federation has to reply.
        max_norm: Largest norm of an update; under the rule "clip" longer ones are clipped to it,
            else they are left out. Unbounded if None.
        max_weight: Largest weight of a client. A client declares its own statistics, and a
            malicious one must not own the model.
        rule: Byzantine-robust aggregation rule; None for plain aggregation.
        byzantine: Malicious clients in a round that the rule tolerates.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    quorum: Fraction = 0.5
    attempts: Count = 3
    deadline: Positive = 600.0
    max_norm: Positive | None = None
    max_weight: Fraction = 1.0
    rule: RobustRule | None = None
    byzantine: Annotated[int, Ge(0)] = 0

    def required(self, chosen: int) -> int:
        """Return how many of so many chosen clients must give a valid update."""
        return max(self.min_updates, math.ceil(self.quorum * chosen))

    @property
    def min_updates(self) -> int:
        """The fewest valid updates with which the rule tolerates `byzantine` malicious clients."""
        if self.rule in ("krum", "multi-krum"):
            return Krum(self.byzantine).least
        if self.rule in ("median", "trimmed-mean"):
            return 2 * self.byzantine + 1
        return 1

    @property
    def validate(self) -> UpdateFilter:
        """The filter that drops updates that cannot be used; what is left must make the quorum."""
        if self.rule is None and self.max_norm is None:
            return accept_all
        if self.rule == "clip" or self.max_norm is None:
            return ValidUpdates()
        return ValidUpdates(self.max_norm)

    @property
    def select(self) -> UpdateFilter:
        """The filter that chooses among the valid updates, or clips them."""
        if self.rule == "clip":
            return ClipFilter(math.inf if self.max_norm is None else self.max_norm)
        if self.rule in ("krum", "multi-krum"):
            return KrumFilter(Krum(self.byzantine, many=self.rule == "multi-krum"))
        return accept_all
