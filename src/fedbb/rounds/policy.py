"""Fault tolerance of a round: quorum and attempts, and the filters that drop or bound updates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Protocol

from annotated_types import Ge

from fedbb._util.constraints import STRICT_TABLE, Count, Fraction, Positive
from fedbb.aggregation.robust import Krum, krum_scores, squared_distances
from fedbb.aggregation.validation import clip_update, validate_update
from fedbb.records import ClientFailure, ClientUpdate, ModelState


@dataclass(frozen=True, eq=False)
class RoundReplies:
    """The clients that replied to the jobs of a round, and those that failed.

    Args:
        clients: who replied, in the order of the jobs; each of their updates is sure to arrive.
        updates: their updates in the same order, possibly still on their way.
        failures: who does not count, and why.
    """

    clients: tuple[int, ...]
    updates: Iterable[ClientUpdate]
    failures: tuple[ClientFailure, ...] = ()


class UpdateFilter(Protocol):
    """Looks at the replies of a round before they are weighed; may drop or change updates."""

    def __call__(self, current: ModelState, replies: RoundReplies) -> RoundReplies:
        """Return the replies that count, given the state that the clients started from."""
        ...


def accept_all(current: ModelState, replies: RoundReplies) -> RoundReplies:
    """Return the replies as they are."""
    return replies


@dataclass(frozen=True)
class ValidUpdates:
    """Drops updates that cannot be trained models, or whose norm is too large.

    Args:
        max_norm: the largest `update_norm` that is allowed.
    """

    max_norm: float = math.inf

    def __call__(self, current: ModelState, replies: RoundReplies) -> RoundReplies:
        """Return the replies with valid updates."""
        held = list(replies.updates)
        faults = {
            update.client: validate_update(current, update.state, self.max_norm) for update in held
        }
        reasons = {client: fault for client, fault in faults.items() if fault is not None}
        return leave_out(replies, held, reasons)


@dataclass(frozen=True)
class KrumFilter:
    """Drops the updates that Krum does not select."""

    krum: Krum

    def __call__(self, current: ModelState, replies: RoundReplies) -> RoundReplies:
        """Return the replies that Krum selects; of equal ones those of the lowest clients."""
        held = list(replies.updates)
        ordered = sorted(held, key=lambda update: update.client)
        distances = squared_distances([update.state for update in ordered])
        scores = krum_scores(distances, self.krum.byzantine)
        kept = set(self.krum(scores).tolist())
        # As a distance, since few know what size a sum of squares should have.
        apart = [math.sqrt(score / (len(held) - self.krum.byzantine - 2)) for score in scores]
        farthest = max(apart[place] for place in kept)
        reasons = {
            update.client: f"left out by {self.krum.name}: {apart[place]:.4g} from its nearest, "
            f"those kept at most {farthest:.4g}"
            for place, update in enumerate(ordered)
            if place not in kept
        }
        return leave_out(replies, held, reasons)


@dataclass(frozen=True)
class ClipFilter:
    """Keeps all updates, and clips those with a larger norm.

    Args:
        max_norm: the largest `update_norm` of what is merged.
    """

    max_norm: float

    def __call__(self, current: ModelState, replies: RoundReplies) -> RoundReplies:
        """Return the replies, each update clipped as it arrives."""
        clipped = (
            replace(update, state=clip_update(current, update.state, self.max_norm))
            for update in replies.updates
        )
        return replace(replies, updates=clipped)


def leave_out(
    replies: RoundReplies, held: Iterable[ClientUpdate], reasons: Mapping[int, str]
) -> RoundReplies:
    """Return the replies without the clients that `reasons` names."""
    kept = [update for update in held if update.client not in reasons]
    left = [ClientFailure(client, reason) for client, reason in reasons.items()]
    return RoundReplies(tuple(update.client for update in kept), kept, (*replies.failures, *left))


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
