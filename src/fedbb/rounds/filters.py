"""The replies of a round, and filters of their updates: validation, Krum, clipping to a norm.

A filter that compares clients or counts the valid ones holds all their models at once; a round
without filters holds none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

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
