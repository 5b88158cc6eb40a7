"""The client's side: a report on its labels goes with the model that it trained."""

from __future__ import annotations

from typing import Protocol, TypeVar

from fedbb.imbalance import Reading, Values
from fedbb.records import LabelCounts
from fedbb.rounds.label_report import describe_labels


class WithMeta(Protocol):
    """What is needed of NVFlare's `FLModel`: a dictionary of whatever goes with the model."""

    meta: dict[str, object]


Model = TypeVar("Model", bound=WithMeta)


def report_label_statistics(
    model: Model,
    labels: LabelCounts | Values,
    *,
    classes: int | None = None,
    reading: Reading = "share-std",
) -> Model:
    """Add two figures to the model that a client sends: its size and its labels' dispersion.

    `ClientBalancedAggregator` computes weights from them. Labels and counts stay at the client.

    Args:
        model: the `FLModel` to send; the figures go into its `meta`.
        labels: the labels that the client trains on, as class numbers (N,), or (N, C) of 0, 1 and
            NaN for an unknown label; or their counts.
        classes: the number of classes of all clients together; needed with class numbers.
        reading: how the dispersion is defined, see `fedbb.dispersion`; the aggregator must have
            the same reading.

    Returns:
        The same model.

    Raises:
        ValueError: class numbers without `classes`, or labels that are none.

    Example:
        `flare.send(report_label_statistics(flare.FLModel(params=params), labels, classes=10))`
    """
    model.meta.update(describe_labels(labels, classes, reading))
    return model
