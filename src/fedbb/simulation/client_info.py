"""The cards clients send before the first round."""

from __future__ import annotations

from collections.abc import Sequence

from fedbb.aggregation.weighting import Weighting
from fedbb.imbalance.counts import count_groups
from fedbb.records import ClientCard, LabelCounts
from fedbb.training.config import Share


def make_cards(shares: Sequence[Share], weighting: Weighting) -> list[ClientCard]:
    """Return the card of every client: its size, and what the weighting asks of its counts."""
    return [
        ClientCard(client, counts.samples, weighting.measure(counts))
        for client, counts in enumerate(count_shares(shares))
    ]


def count_shares(shares: Sequence[Share]) -> list[LabelCounts]:
    """Return the label counts of all clients of one data set."""
    dataset = shares[0].dataset
    groups = [share.indices for share in shares]
    return count_groups(dataset.train.labels, groups, dataset.task, len(dataset.classes))
