"""Replies of Flower apps that are not ours, checked before a strategy sees them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues

from fedbb.errors import ReplyError
from fedbb.flower.app.serde import read_arrays
from fedbb.flower.mods import SAMPLES, dispersion_key
from fedbb.imbalance.clients import Reading
from fedbb.records import ClientInfo
from fedbb.rounds.replies import (
    FARTHEST,
    MOST_SAMPLES,
    check_arrays,
    check_client_info,
    length,
)
from fedbb.state import Arrays

Metrics = Mapping[str, MetricRecordValues]
Record = TypeVar("Record", ArrayRecord, MetricRecord)


@dataclass(frozen=True, eq=False)
class TrainReply:
    """A node's answer that may count; `whole` are those of its arrays that hold integers."""

    message: Message
    info: ClientInfo
    arrays: ArrayRecord
    whole: Arrays
    metrics: Metrics


@dataclass(frozen=True, eq=False)
class Sent:
    """What the nodes were sent in a round, from which follows what they may answer."""

    round: int
    nodes: frozenset[int]
    arrays: Arrays
    reading: Reading
    max_norm: float = FARTHEST


def check_train(message: Message, sent: Sent) -> TrainReply:
    """Return what a reply to a train message holds, or refuse it, naming the field."""
    content = _content(message)
    metrics = dict(_only(content.metric_records, "MetricRecord"))
    info = _take_card(message.metadata.src_node_id, metrics, sent.reading)
    record = _only(content.array_records, "ArrayRecord")
    arrays = check_arrays(read_arrays(record), sent.arrays, "arrays")
    _check_distance(arrays, sent)
    whole = {name: array for name, array in arrays.items() if array.dtype.kind in "biu"}
    ordered = ArrayRecord({name: record[name] for name in sent.arrays})
    return TrainReply(message, info, ordered, whole, metrics)


def check_evaluation(message: Message, key: str) -> Metrics:
    """Return the metrics of a reply to an evaluate message, which are weighed by one of them."""
    metrics = dict(_only(_content(message).metric_records, "MetricRecord"))
    weight = metrics.get(key)
    if not isinstance(weight, int | float) or not 0 < weight < MOST_SAMPLES:
        raise ReplyError(f"{key} is {_show(weight)}, not a number above 0")
    return metrics


def share_metrics(replies: Sequence[Metrics]) -> list[Metrics]:
    """Return of each the metrics that all have, and in one form: there is no mean of the others."""
    forms = [{(name, _length(value)) for name, value in metrics.items()} for metrics in replies]
    shared = {name for name, _ in set[tuple[str, int | None]].intersection(*forms)}
    return [{name: metrics[name] for name in sorted(shared)} for metrics in replies]


def pass_on(message: Message, records: Mapping[str, ArrayRecord | MetricRecord]) -> Message:
    """Return the message with these records in place of those it came with, configs apart."""
    configs = dict(message.content.config_records)
    message.content = RecordDict({**configs, **records})
    return message


def _content(message: Message) -> RecordDict:
    if not message.has_content():
        reason = message.error.reason if message.has_error() else None
        raise ReplyError(f"it answers with an error: {_show(reason)}")
    return message.content


def _only(records: Mapping[str, Record], kind: str) -> Record:
    if len(records) != 1:
        raise ReplyError(f"it sends {len(records)} of {kind}, not one")
    return next(iter(records.values()))


def _take_card(node: int, metrics: dict[str, MetricRecordValues], reading: Reading) -> ClientInfo:
    """Take the card out of the metrics, for nobody wants its mean."""
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


def _check_distance(arrays: Arrays, sent: Sent) -> None:
    changes = (
        array.astype(np.float64) - sent.arrays[name].astype(np.float64)
        for name, array in arrays.items()
        if array.dtype.kind == "f"
    )
    norm = math.hypot(*(length(change) for change in changes))
    if not norm <= sent.max_norm:
        raise ReplyError(f"norm: its arrays moved by {norm:.3g}, more than {sent.max_norm:g}")


def _show(value: object) -> str:
    """Return a value as a message may quote it; a hostile one can be as long as it likes."""
    text = repr(value)
    return text if len(text) <= 200 else text[:199] + "…"


def _length(value: MetricRecordValues) -> int | None:
    return len(value) if isinstance(value, list) else None
