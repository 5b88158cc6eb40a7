"""The cards clients send before the first round."""

from __future__ import annotations

from collections.abc import Iterable

from fedbb.aggregation.weighting import Weighting
from fedbb.records import ClientCard
from fedbb.training.plan import Share


def make_cards(shares: Iterable[Share], weighting: Weighting) -> list[ClientCard]:
    """Return the card of every client: its size, and what the weighting asks of its counts."""
    return [
        ClientCard(client, len(share), weighting.measure(share.count()))
        for client, share in enumerate(shares)
    ]
