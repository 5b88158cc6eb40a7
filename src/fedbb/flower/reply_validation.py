"""Checks of the replies of other people's Flower apps, before a strategy aggregates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues

from fedbb._util.text import quote
from fedbb.errors import ReplyError
from fedbb.flower.app.serde import read_arrays
from fedbb.flower.mods import SAMPLES, dispersion_key
from fedbb.imbalance.clients import Reading
from fedbb.records import ClientInfo, ModelState
from fedbb.rounds.replies import (
    FARTHEST,
    MOST_SAMPLES,
    check_arrays,
    check_client_info,
    check_update,
)
from fedbb.state import Arrays

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""Last parts of the names that torch gives to the buffers of normalization layers."""

Metrics = Mapping[str, MetricRecordValues]
Record = TypeVar("Record", ArrayRecord, MetricRecord)


@dataclass(frozen=True, eq=False)
class TrainReply:
    """A node's valid reply; `integers` are those of its arrays that hold integers."""

    message: Message
    info: ClientInfo
    arrays: ArrayRecord
    integers: Arrays
    metrics: Metrics


@dataclass(frozen=True, eq=False)
class Sent:
    """What the nodes were sent in a round, which determines what a valid reply looks like."""

    round: int
    nodes: frozenset[int]
    arrays: Arrays
    reading: Reading
    max_norm: float = FARTHEST

    @cached_property
    def state(self) -> ModelState:
        """The arrays as parameters and buffers."""
        return split_arrays(self.arrays)


def check_train(message: Message, sent: Sent) -> TrainReply:
    """Return the content of a reply to a train message.

    Raises:
        ReplyError: names the field that is wrong.
    """
    content = _content(message)
    metrics = dict(_only(content.metric_records, "MetricRecord"))
    info = _take_client_info(message.metadata.src_node_id, metrics, sent.reading)
    record = _only(content.array_records, "ArrayRecord")
    arrays = check_arrays(read_arrays(record), sent.arrays, "arrays")
    check_update(sent.state, split_arrays(arrays), sent.max_norm, "arrays")
    integers = {name: array for name, array in arrays.items() if array.dtype.kind in "biu"}
    ordered = ArrayRecord({name: record[name] for name in sent.arrays})
    return TrainReply(message, info, ordered, integers, metrics)


def split_arrays(arrays: Arrays) -> ModelState:
    """Return floating-point arrays as the parameters and buffers of a model, in float64.

    An app sends one list of arrays. Those with the names of `BUFFERS` are taken for buffers and
    the others for parameters, as in a torch state dict; `max_norm` then means what it means in a
    recipe. Integers are left out.
    """
    floats = {
        name: torch.from_numpy(array.astype(np.float64))
        for name, array in arrays.items()
        if array.dtype.kind == "f"
    }
    buffers = {name for name in floats if name.rpartition(".")[2] in BUFFERS}
    return ModelState(
        {name: tensor for name, tensor in floats.items() if name not in buffers},
        {name: tensor for name, tensor in floats.items() if name in buffers},
    )


def check_evaluation(message: Message, key: str) -> Metrics:
    """Return the metrics of a reply to an evaluate message, which are weighted by one of them."""
    metrics = dict(_only(_content(message).metric_records, "MetricRecord"))
    weight = metrics.get(key)
    if not isinstance(weight, int | float) or not 0 < weight < MOST_SAMPLES:
        raise ReplyError(f"{key} is {quote(weight)}, not a number above 0")
    return metrics


def share_metrics(replies: Sequence[Metrics]) -> list[Metrics]:
    """Return the metrics that all replies have in one form; the others cannot be averaged."""
    forms = [{(name, _length(value)) for name, value in metrics.items()} for metrics in replies]
    shared = {name for name, _ in set[tuple[str, int | None]].intersection(*forms)}
    return [{name: metrics[name] for name in sorted(shared)} for metrics in replies]


def pass_on(message: Message, records: Mapping[str, ArrayRecord | MetricRecord]) -> Message:
    """Return the message with these records in place of its own; its configs stay."""
    configs = dict(message.content.config_records)
    message.content = RecordDict({**configs, **records})
    return message


def _content(message: Message) -> RecordDict:
    if not message.has_content():
        reason = message.error.reason if message.has_error() else None
        raise ReplyError(f"it replies with an error: {quote(reason)}")
    return message.content


def _only(records: Mapping[str, Record], kind: str) -> Record:
    if len(records) != 1:
        raise ReplyError(f"it sends {len(records)} of {kind}, not one")
    return next(iter(records.values()))


def _take_client_info(
    node: int, metrics: dict[str, MetricRecordValues], reading: Reading
) -> ClientInfo:
    """Remove the client info from the metrics, which are averaged, and return it."""
    spread = dispersion_key(reading)
    for key in (SAMPLES, spread):
        if key not in metrics:
            raise ReplyError(
                f"it sends no {key}; its ClientApp needs the mod report_card, reading {reading}"
            )
    info = check_client_info(node, metrics.pop(SAMPLES), metrics.pop(spread), measured=True)
    if info.samples == 0:
        raise ReplyError("it has no samples")
    return info


def _length(value: MetricRecordValues) -> int | None:
    return len(value) if isinstance(value, list) else None
