"""Client-balanced weighting around any Flower strategy, for existing Flower apps."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedbb._util.text import quote
from fedbb.aggregation.merging import ClientBalanced
from fedbb.errors import DivergedError, ReplyError
from fedbb.flower.app.serde import read_arrays
from fedbb.imbalance import Reading
from fedbb.records import ClientInfo, ModelState
from fedbb.rounds.label_report import (
    ClientWeight,
    check_limits,
    compare_weights,
    split_arrays,
    take_client_info,
)
from fedbb.rounds.replies import EXACT_INTEGERS, FARTHEST, check_arrays, check_update
from fedbb.state import Arrays

REMEDY = "its ClientApp needs the mod report_label_statistics"

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
    info = take_client_info(message.metadata.src_node_id, metrics, sent.reading, REMEDY)
    record = _only(content.array_records, "ArrayRecord")
    arrays = check_arrays(read_arrays(record), sent.arrays, "arrays")
    check_update(sent.state, split_arrays(arrays), sent.max_norm, "arrays")
    integers = {name: array for name, array in arrays.items() if array.dtype.kind in "biu"}
    ordered = ArrayRecord({name: record[name] for name in sent.arrays})
    return TrainReply(message, info, ordered, integers, metrics)


def check_evaluation(message: Message, key: str) -> Metrics:
    """Return the metrics of a reply to an evaluate message, which are weighted by one of them."""
    metrics = dict(_only(_content(message).metric_records, "MetricRecord"))
    weight = metrics.get(key)
    if not isinstance(weight, int | float) or not 0 < weight < EXACT_INTEGERS:
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


def _length(value: MetricRecordValues) -> int | None:
    return len(value) if isinstance(value, list) else None


LOG = logging.getLogger("flwr.fedbb")

CBR = ClientBalanced()


@dataclass(eq=False)
class ClientBalancedStrategy(Strategy):
    """A Flower strategy that validates replies and weights nodes by how even their labels are.

    It wraps another strategy, which chooses nodes and aggregates as before; only the weights,
    its `weighted_by_key`, are replaced by those of CBR. A reply must hold one record of arrays
    with the names, types and shapes that were sent, and the metrics that the mod
    `report_label_statistics` adds. An invalid reply is left out and logged, and the weights of the
    others are scaled to sum to one. Integer arrays keep their type; the largest value is used.

    Args:
        strategy: the strategy to wrap; one that uses medians or distances ignores weights.
        weighting: how client infos become weights (γ, reading, floor).
        quorum: the fraction of the sampled nodes that must reply validly; otherwise the round
            leaves the model unchanged.
        max_weight: the largest weight of a node. It limits a node that reports false statistics.
        max_norm: the largest L2 norm of a node's change of the model, as `defense.max_norm` in a
            recipe; by default what float32 can square. An app's arrays do not say which of them
            are parameters: floating-point arrays whose names end in `running_mean` or
            `running_var` are taken for buffers, all others for parameters.

    Attributes:
        shares: the weight of each node in the last round.
        weights: the same as rows, with each node's report and the weights that it would have
            under equal weights, by samples, and under CBR without `max_weight`.

    Example:
        `ClientBalancedStrategy(FedAvg(fraction_train=0.5), max_weight=0.3)`
    """

    strategy: Strategy
    weighting: ClientBalanced = CBR
    quorum: float = 0.5
    max_weight: float = 1.0
    max_norm: float = FARTHEST
    shares: Mapping[int, float] = field(default_factory=dict, init=False)
    weights: tuple[ClientWeight, ...] = field(default=(), init=False)
    _sent: Sent | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, Strategy):
            raise TypeError(f"strategy must be a Flower strategy, not {self.strategy!r}")
        check_limits(self.quorum, self.max_weight, self.max_norm)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy choose nodes, and remember what was sent to whom."""
        values = {name: array.numpy() for name, array in arrays.items()}
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        nodes = frozenset(message.metadata.dst_node_id for message in messages)
        self._sent = Sent(server_round, nodes, values, self.weighting.reading, self.max_norm)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Weight the valid replies and let the strategy aggregate them."""
        sent = self._sent
        if sent is None or sent.round != server_round:
            raise RuntimeError("aggregate_train needs the configure_train of the same round")
        self.shares, self.weights = {}, ()
        valid = sorted(self._validate(replies, sent), key=lambda reply: reply.info.client)
        least = max(1, math.ceil(self.quorum * len(sent.nodes)))
        if len(valid) < least:
            _log_missed_quorum(sent, len(valid), least)
            return None, None
        infos = [reply.info for reply in valid]
        self.weights = tuple(compare_weights(infos, self.weighting, self.max_weight))
        self.shares = {row.client: row.weight for row in self.weights}
        LOG.info("round %d: %s", server_round, _describe_shares(self.shares))
        arrays, metrics = self.strategy.aggregate_train(
            server_round, self._weighted(valid, list(self.shares.values()))
        )
        return None if arrays is None else _keep_types(arrays, valid, sent), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy choose the nodes that evaluate."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let the strategy average the valid replies with its own weights."""
        usable, metrics = [], []
        for message in replies:
            try:
                metrics.append(check_evaluation(message, weight_key(self.strategy)))
                usable.append(message)
            except ReplyError as error:
                _leave_out(server_round, message.metadata.src_node_id, error)
        if not usable:
            return None
        shared = zip(usable, share_metrics(metrics), strict=True)
        passed = [pass_on(m, {"metrics": MetricRecord(dict(known))}) for m, known in shared]
        return self.strategy.aggregate_evaluate(server_round, passed)

    def summary(self) -> None:
        """Log how nodes are weighted, then the summary of the wrapped strategy."""
        LOG.info("\t├──> Client-balanced: %s", self.weighting)
        LOG.info("\t│\t├── Quorum: %g of the sampled nodes", self.quorum)
        LOG.info("\t│\t└── Limits: weight %g, norm %g", self.max_weight, self.max_norm)
        self.strategy.summary()

    def _validate(self, replies: Iterable[Message], sent: Sent) -> Iterator[TrainReply]:
        """Yield the valid replies, one per node; log why the others are left out."""
        waiting = set(sent.nodes)
        for message in replies:
            node = message.metadata.src_node_id
            if node not in waiting:
                known = node in sent.nodes
                _leave_out(sent.round, node, "duplicate" if known else "it was not asked")
                continue
            waiting.remove(node)
            try:
                yield check_train(message, sent)
            except ReplyError as error:
                _leave_out(sent.round, node, error)
        for node in sorted(waiting):
            _leave_out(sent.round, node, "no reply")

    def _weighted(self, replies: Sequence[TrainReply], weights: Sequence[float]) -> list[Message]:
        key = weight_key(self.strategy)
        metrics = share_metrics([reply.metrics for reply in replies])
        return [
            pass_on(
                reply.message,
                {"arrays": reply.arrays, "metrics": MetricRecord({**known, key: weight})},
            )
            for reply, known, weight in zip(replies, metrics, weights, strict=True)
        ]


def weight_key(strategy: Strategy) -> str:
    """Return the metric by which a strategy weights, also inside Flower's own wrappers."""
    while isinstance(inner := getattr(strategy, "strategy", None), Strategy):
        strategy = inner
    return str(getattr(strategy, "weighted_by_key", "num-examples"))


def _keep_types(arrays: ArrayRecord, replies: Sequence[TrainReply], sent: Sent) -> ArrayRecord:
    """Return aggregated arrays in the types that were sent: a mean turns integers into floats."""
    kept: dict[str, Array] = {}
    for name, array in arrays.items():
        if name in replies[0].integers:
            values = np.max([reply.integers[name] for reply in replies], axis=0)
        else:
            values = array.numpy()
        with np.errstate(over="ignore"):  # an overflow is rejected below
            values = np.asarray(values, dtype=sent.arrays[name].dtype)
        if not np.isfinite(values).all():
            raise DivergedError(
                f"round {sent.round}: the strategy made {name} not finite of {len(replies)} "
                "replies that were"
            )
        kept[name] = Array(values)
    return ArrayRecord(kept)


def _leave_out(round: int, node: int, reason: object) -> None:
    LOG.warning("round %d: node %d is left out: %s", round, node, reason)


def _log_missed_quorum(sent: Sent, valid: int, least: int) -> None:
    if sent.nodes:
        LOG.warning(
            "round %d: %d of %d nodes count and %d are needed; the model is unchanged",
            sent.round,
            valid,
            len(sent.nodes),
            least,
        )


def _describe_shares(shares: Mapping[int, float]) -> str:
    low, high = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    return (
        f"{len(shares)} nodes count, from {shares[low]:.3f} (node {low}) "
        f"to {shares[high]:.3f} (node {high})"
    )
