"""A client mod for existing Flower apps, which adds label statistics to train replies."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message, MessageType, MetricRecord
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedbb.aggregation.merging import ClientBalanced
from fedbb.imbalance import Reading, Values
from fedbb.records import LabelCounts
from fedbb.rounds.label_report import describe_labels

Counting = Callable[[Context], LabelCounts | Values]
"""A function from a node's context to the labels it trains on, or to their counts."""


def report_label_statistics(
    counts: Counting, *, classes: int | None = None, reading: Reading = "share-std"
) -> Mod:
    """Return a Flower mod that adds two metrics to the train replies of a client.

    The metrics are the number of samples and the dispersion of the labels, from which
    `ClientBalancedStrategy` computes weights. Labels and counts stay at the client.

    Args:
        counts: returns the labels of a node, or their counts; called after each training. Labels
            are class numbers (N,), or (N, C) of 0, 1 and NaN for an unknown label.
        classes: the number of classes of all clients together; needed with class numbers.
        reading: how the dispersion is defined, see `fedbb.dispersion`; the strategy's weighting
            must have the same reading.

    Returns:
        A mod for `ClientApp(mods=[...])`.

    Raises:
        ValueError: at the first training, if class numbers come without `classes`.
    """
    ClientBalanced(reading=reading)  # refuses an unknown reading now, not after the training

    def add_statistics(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if reply.has_content() and _asks_to_train(message):
            _metrics_of(reply).update(describe_labels(counts(context), classes, reading))
        return reply

    return add_statistics


def _asks_to_train(message: Message) -> bool:
    return message.metadata.message_type.partition(".")[0] == MessageType.TRAIN


def _metrics_of(reply: Message) -> MetricRecord:
    """Return the reply's metrics, which a strategy expects in one record."""
    if not reply.content.metric_records:
        reply.content["metrics"] = MetricRecord()
    return next(iter(reply.content.metric_records.values()))
