"""CBR in apps of other frameworks: reports on labels, their check, and a round's balanced mean.

A client reports its number of samples and the dispersion of its labels beside the model it
trained. The functions here know no framework; `fedbb.flower` and `fedbb.nvflare` use them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedbb.aggregation.merging import BySamples, ClientBalanced, renormalize
from fedbb.errors import ReplyError
from fedbb.imbalance import Reading, Values, count_labels
from fedbb.records import ClientInfo, LabelCounts, ModelState, Task
from fedbb.rounds.replies import FARTHEST, check_arrays, check_client_info, check_update
from fedbb.state import Arrays

SAMPLES = "fedbb-samples"
"""The entry that holds the number of samples a client trains on."""

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""Last parts of the names that torch gives to the buffers of normalization layers."""


def dispersion_key(reading: Reading) -> str:
    """Return the name of the dispersion's entry, which includes the reading."""
    return f"fedbb-{reading}"


def describe_labels(
    labels: LabelCounts | Values, classes: int | None, reading: Reading
) -> dict[str, int | float]:
    """Return the two figures that a client reports: its size and the dispersion of its labels.

    Args:
        labels: class numbers (N,), or (N, C) of 0, 1 and NaN for an unknown label, or their counts.
        classes: the number of classes of all clients together; needed with class numbers.
        reading: how the dispersion is defined, see `fedbb.dispersion`.

    Returns:
        The figures by name.

    Raises:
        ValueError: class numbers without `classes`.
    """
    counts = _count(labels, classes)
    spread = ClientBalanced(reading=reading).measure(counts)
    return {SAMPLES: counts.samples, dispersion_key(reading): spread}


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


def take_client_info(
    client: int, entries: MutableMapping[str, Any], reading: Reading, remedy: str
) -> ClientInfo:
    """Remove a client's report from the entries that came with its model, and return it.

    Args:
        client: the client's number.
        entries: what came with the model, such as metrics, which are averaged afterwards.
        reading: the reading of the server's weighting.
        remedy: what a client without a report lacks.

    Raises:
        ReplyError: a missing or impossible figure, or a client without samples.
    """
    spread = dispersion_key(reading)
    for key in (SAMPLES, spread):
        if key not in entries:
            raise ReplyError(f"it sends no {key}; {remedy}, reading {reading}")
    info = check_client_info(client, entries.pop(SAMPLES), entries.pop(spread), measured=True)
    if info.samples == 0:
        raise ReplyError("it has no samples")
    return info


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


@dataclass(frozen=True)
class ClientWeight:
    """The weight of a client in a round, beside those that other rules would give it.

    Args:
        client: its number.
        samples: its number of samples.
        dispersion: the dispersion of its labels.
        uniform: its weight if all clients counted equally.
        by_samples: its weight in proportion to its samples (FedAvg).
        cbr: its weight under CBR without a bound.
        weight: the weight that was used: CBR within the bound.
    """

    client: int
    samples: int
    dispersion: float
    uniform: float
    by_samples: float
    cbr: float
    weight: float


def compare_weights(
    infos: Sequence[ClientInfo], weighting: ClientBalanced, max_weight: float = 1.0
) -> list[ClientWeight]:
    """Return the weight of each client, with those of other rules beside it.

    Args:
        infos: what the clients of a round report; at least one.
        weighting: CBR with its settings.
        max_weight: the largest weight of a client.

    Returns:
        A row for each client, in the order of the infos. The weights of each rule sum to one.
    """
    cbr = weighting(infos)
    columns = (
        np.full(len(infos), 1.0 / len(infos)),
        BySamples()(infos),
        renormalize(cbr),
        renormalize(cbr, max_weight),
    )
    return [
        ClientWeight(info.client, info.samples, float(info.dispersion or 0.0), *row)
        for info, row in zip(infos, np.stack(columns, axis=1).tolist(), strict=True)
    ]


def check_limits(quorum: float, max_weight: float, max_norm: float) -> None:
    """Refuse limits of a round that mean nothing.

    Raises:
        ValueError: a limit outside of its range.
    """
    if not 0 <= quorum <= 1:
        raise ValueError(f"quorum must be in [0, 1], not {quorum}")
    if not 0 < max_weight <= 1:
        raise ValueError(f"max_weight must be above 0 and at most 1, not {max_weight}")
    if not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, not {max_norm}")


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
