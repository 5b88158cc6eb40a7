"""The replies of one round and their client-balanced mean; it knows nothing of NVFlare."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.aggregation.merging import ClientBalanced
from fedbb.errors import ReplyError
from fedbb.records import ClientInfo
from fedbb.rounds.label_report import (
    ClientWeight,
    check_limits,
    compare_weights,
    split_arrays,
    take_client_info,
)
from fedbb.rounds.replies import FARTHEST, check_arrays, check_update
from fedbb.state import Arrays

REMEDY = "its training script needs report_label_statistics"

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Limits:
    """What a round requires of its replies, see `ClientBalancedAggregator`."""

    quorum: float = 0.5
    max_weight: float = 1.0
    max_norm: float = FARTHEST

    def __post_init__(self) -> None:
        check_limits(self.quorum, self.max_weight, self.max_norm)


@dataclass(frozen=True, eq=False)
class Reply:
    """A valid reply. `read` returns its arrays, from memory or from the server's own disk."""

    info: ClientInfo
    read: Callable[[], Arrays]
    is_change: bool
    figures: Figures


@dataclass(frozen=True, eq=False)
class Merged:
    """What a round gives: arrays, whether these are changes, mean figures, and the weights."""

    arrays: Arrays
    is_change: bool
    figures: Figures
    names: tuple[str, ...]
    weights: tuple[ClientWeight, ...]


@dataclass(eq=False)
class BalancedMean:
    """Collects the replies to one request and returns their mean under CBR.

    Replies are merged in the order of the clients' names and in float64, so that the result does
    not depend on the order of arrival.

    Args:
        sent: the arrays that the clients were sent, which determine what a valid reply looks like.
        weighting: how reports become weights.
        limits: what the round requires.
    """

    sent: Arrays
    weighting: ClientBalanced
    limits: Limits
    asked: set[str] = field(default_factory=set)
    _replies: dict[str, Reply] = field(default_factory=dict)

    def add(
        self,
        client: str,
        read: Callable[[], Arrays],
        entries: Mapping[str, Any],
        figures: Mapping[str, Any],
        *,
        is_change: bool = False,
    ) -> None:
        """Take the reply of a client.

        Args:
            client: its name, as the server knows it.
            read: returns the arrays that it sent.
            entries: what came with them; the report on its labels is there.
            figures: its metrics; those that are finite numbers are averaged.
            is_change: whether the arrays are changes of those that it was sent.

        Raises:
            ReplyError: says what is wrong; the reply does not count.
        """
        if client in self._replies:
            raise ReplyError("duplicate: it has already replied")
        info = take_client_info(0, dict(entries), self.weighting.reading, REMEDY)
        arrays = check_arrays(read(), self.sent, "arrays")
        trained = self._add_sent(arrays) if is_change else arrays
        check_update(split_arrays(self.sent), split_arrays(trained), self.limits.max_norm, "arrays")
        self.asked.add(client)
        self._replies[client] = Reply(info, read, is_change, _numbers(figures))

    def merge(self) -> Merged | None:
        """Return the mean of the replies; None if fewer than the quorum are valid."""
        if not self._replies or len(self._replies) < self.least:
            return None
        names = tuple(sorted(self._replies))
        replies = [self._replies[name] for name in names]
        infos = [replace(reply.info, client=place) for place, reply in enumerate(replies)]
        rows = compare_weights(infos, self.weighting, self.limits.max_weight)
        is_change = all(reply.is_change for reply in replies)
        sums: dict[str, npt.NDArray[Any]] = {}
        for reply, row in zip(replies, rows, strict=True):
            arrays = reply.read()
            if reply.is_change and not is_change:
                arrays = self._add_sent(arrays)
            for name, array in arrays.items():
                sums[name] = _accumulate(sums.get(name), array, row.weight)
        figures = _mean_figures(replies, [row.weight for row in rows])
        means = {name: np.asarray(sums[name], like.dtype) for name, like in self.sent.items()}
        return Merged(means, is_change, figures, names, tuple(rows))

    @property
    def valid(self) -> int:
        """The number of valid replies so far."""
        return len(self._replies)

    @property
    def least(self) -> int:
        """The number of valid replies that the quorum requires."""
        return max(1, math.ceil(self.limits.quorum * len(self.asked)))

    def _add_sent(self, changes: Arrays) -> dict[str, npt.NDArray[Any]]:
        return {name: np.asarray(self.sent[name] + array) for name, array in changes.items()}


def _accumulate(
    total: npt.NDArray[Any] | None, array: npt.NDArray[Any], weight: float
) -> npt.NDArray[Any]:
    """Return w·a added to a sum; integers take the largest value, as everywhere in fedbb."""
    if array.dtype.kind not in "fc":
        return array if total is None else np.maximum(total, array)
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64) * weight
    if total is None:
        return np.asarray(wide)
    total += wide
    return total


def _numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    # bool is an int; a client that sends one means 0 or 1.
    numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    return {str(name): float(value) for name, value in numbers.items() if math.isfinite(value)}


def _mean_figures(replies: list[Reply], weights: list[float]) -> dict[str, float]:
    """Return the weighted means of the metrics that all replies have."""
    shared = set.intersection(*(set(reply.figures) for reply in replies))
    return {
        name: sum(w * reply.figures[name] for w, reply in zip(weights, replies, strict=True))
        for name in sorted(shared)
    }
