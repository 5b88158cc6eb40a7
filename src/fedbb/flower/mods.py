"""A client mod for existing Flower apps, which adds label statistics to train replies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import Context, Message, MessageType, MetricRecord
from flwr.clientapp.typing import ClientAppCallable, Mod
from torch import Tensor

from fedbb.aggregation.merging import ClientBalanced
from fedbb.imbalance import Reading, Values, count_labels
from fedbb.records import LabelCounts, Task

SAMPLES = "fedbb-samples"
"""The metric that holds the number of samples a client trains on."""

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
    weighting = ClientBalanced(reading=reading)

    def add_statistics(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if reply.has_content() and _asks_to_train(message):
            counted = _count(counts(context), classes)
            metrics = _metrics_of(reply)
            metrics[SAMPLES] = counted.samples
            metrics[dispersion_key(reading)] = weighting.measure(counted)
        return reply

    return add_statistics


def dispersion_key(reading: Reading) -> str:
    """Return the name of the dispersion metric, which includes the reading."""
    return f"fedbb-{reading}"


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
            "report_label_statistics needs classes=…: class numbers alone do not say how many "
            "classes there are"
        )
    return count_labels(array, Task.MULTICLASS, classes)


def _metrics_of(reply: Message) -> MetricRecord:
    """Return the reply's metrics, which a strategy expects in one record."""
    if not reply.content.metric_records:
        reply.content["metrics"] = MetricRecord()
    return next(iter(reply.content.metric_records.values()))
