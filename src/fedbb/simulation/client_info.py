"""The cards clients send before the first round."""

from __future__ import annotations

from collections.abc import Sequence

from fedbb.aggregation.weighting import Weighting
from fedbb.imbalance.counts import count_groups
from fedbb.records import ClientInfo, LabelCounts
from fedbb.training.config import ClientDataset


def make_client_infos(shares: Sequence[ClientDataset], weighting: Weighting) -> list[ClientInfo]:
    """Return the card of every client: its size, and what the weighting asks of its counts."""
    return [
        ClientInfo(client, counts.samples, weighting.measure(counts))
        for client, counts in enumerate(count_clients(shares))
    ]


def count_clients(shares: Sequence[ClientDataset]) -> list[LabelCounts]:
    """Return the label counts of all clients of one data set."""
    dataset = shares[0].dataset
    groups = [share.indices for share in shares]
    return count_groups(dataset.train.labels, groups, dataset.task, len(dataset.classes))
