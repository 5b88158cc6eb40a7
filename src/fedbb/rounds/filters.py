"""Which answers of a round count: those that are sound, within bounds, and trusted by a rule.

To compare clients all their models have to be held at once; rounds without a screen hold none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from fedbb.aggregation.robust.clipping import clip_change
from fedbb.aggregation.robust.krum import Krum, krum_scores, squared_distances
from fedbb.aggregation.validation import validate_update
from fedbb.records import ClientFailure, ClientUpdate, ModelState
from fedbb.simulation.base import RoundReplies


class UpdateFilter(Protocol):
    """Looks at the replies of a round before they are weighted; may remove or clip updates."""

    def __call__(self, current: ModelState, answers: RoundReplies) -> RoundReplies:
        """Return the replies that count."""
        ...


def accept_all(current: ModelState, answers: RoundReplies) -> RoundReplies:
    """Return the replies as they are."""
    return answers


@dataclass(frozen=True)
class ValidUpdates:
    """Leaves out models that cannot be trained ones, or moved further than `most`."""

    most: float = math.inf

    def __call__(self, current: ModelState, answers: RoundReplies) -> RoundReplies:
        """Return the answers that are sound."""
        held = list(answers.updates)
        faults = {
            update.client: validate_update(current, update.state, self.most) for update in held
        }
        reasons = {client: fault for client, fault in faults.items() if fault is not None}
        return leave_out(answers, held, reasons)


@dataclass(frozen=True)
class KrumFilter:
    """Leaves out those whom Krum does not keep."""

    krum: Krum

    def __call__(self, current: ModelState, answers: RoundReplies) -> RoundReplies:
        """Return the answers that Krum keeps; of equal ones those of the lowest clients."""
        held = list(answers.updates)
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
        return leave_out(answers, held, reasons)


@dataclass(frozen=True)
class ClipFilter:
    """Keeps everybody, and draws back whoever moved further than `most`."""

    most: float

    def __call__(self, current: ModelState, answers: RoundReplies) -> RoundReplies:
        """Return the answers, each within the bound, as they come."""
        clipped = (
            replace(update, state=clip_change(current, update.state, self.most))
            for update in answers.updates
        )
        return replace(answers, updates=clipped)


def leave_out(
    answers: RoundReplies, held: Iterable[ClientUpdate], reasons: Mapping[int, str]
) -> RoundReplies:
    """Return the answers without those that there are reasons against."""
    kept = [update for update in held if update.client not in reasons]
    left = [ClientFailure(client, reason) for client, reason in reasons.items()]
    return RoundReplies(tuple(update.client for update in kept), kept, (*answers.absences, *left))
