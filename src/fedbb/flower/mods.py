"""A client mod for Flower apps that are not ours: train replies also carry the client's card."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import Context, Message, MessageType, MetricRecord
from flwr.clientapp.typing import ClientAppCallable, Mod
from torch import Tensor

from fedbb.aggregation.weighting import ClientBalanced
from fedbb.imbalance.clients import Reading
from fedbb.imbalance.counts import Values, count_labels
from fedbb.records import LabelCounts, Task

SAMPLES = "card-samples"
"""The metric that tells how many samples a client trains on."""

Counting = Callable[[Context], LabelCounts | Values]
"""A way from a node's context to the labels it trains on, or to their counts."""


def report_card(
    counts: Counting, *, classes: int | None = None, reading: Reading = "share-std"
) -> Mod:
    """Return a mod that adds a client's card to the metrics of its train replies.

    The card is two numbers: how many samples there are, and how uneven their labels are. Counts
    and labels stay where they are.

    Args:
        counts: called after each training. Labels are (N,) class numbers, or (N, C) of 0, 1 and NaN
            for an unknown one.
        classes: how many classes all clients together have, which class numbers do not tell.
        reading: what "how uneven" means, see `fedbb.dispersion`; the strategy must go by the same.
    """
    weighting = ClientBalanced(reading=reading)

    def add_card(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if reply.has_content() and _asks_to_train(message):
            counted = _count(counts(context), classes)
            metrics = _metrics_of(reply)
            metrics[SAMPLES] = counted.samples
            metrics[dispersion_key(reading)] = weighting.measure(counted)
        return reply

    return add_card


def dispersion_key(reading: Reading) -> str:
    """Return the metric that tells how uneven a client's labels are, which says in what sense."""
    return f"card-{reading}"


def _asks_to_train(message: Message) -> bool:
    return message.metadata.message_type.partition(".")[0] == MessageType.TRAIN


def _count(labels: LabelCounts | Values, classes: int | None) -> LabelCounts:
    if isinstance(labels, LabelCounts):
        return labels
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim == 2:
        return count_labels(array, Task.MULTILABEL, array.shape[1])
    if classes is None:
        raise ValueError(
            "report_card needs classes=…: class numbers do not tell how many there are"
        )
    return count_labels(array, Task.MULTICLASS, classes)


def _metrics_of(reply: Message) -> MetricRecord:
    """Return the reply's metrics, which a strategy expects in one record."""
    if not reply.content.metric_records:
        reply.content["metrics"] = MetricRecord()
    return next(iter(reply.content.metric_records.values()))
