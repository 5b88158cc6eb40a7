"""Which client holds which examples, as a record that can be checked, saved and shared."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.collection import pause_collection
from fedbb.data.dataset import Dataset
from fedbb.data.download import replacing
from fedbb.errors import DataError
from fedbb.imbalance import count_groups
from fedbb.partition.label_distance import measure_skew
from fedbb.records import FloatArray, IntArray

_FORMAT = "fedbb partition 1"


@dataclass(frozen=True, eq=False)
class Partition:
    """Which examples each client has, and the labels and rule the partition was made for.

    Attributes:
        clients: sorted places of each client's examples; every example has exactly one client.
        samples: number of examples.
        fingerprint: SHA-256 of the labels, so that a partition is not used with other data.
        rule: how it was made.
    """

    clients: tuple[IntArray, ...]
    samples: int
    fingerprint: str
    rule: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, client: int) -> IntArray:
        return self.clients[client]

    def __repr__(self) -> str:
        sizes, rule = self.sizes or [0], self.rule
        skew = f"; skew {rule['measured_skew']:.3f}" if "measured_skew" in rule else ""
        return (
            f"Partition of {self.samples} samples among {len(self)} clients "
            f"({rule.get('kind', 'no rule')}): {min(sizes)} to {max(sizes)} each, "
            f"median {np.median(sizes):g}{skew}"
        )

    @property
    def sizes(self) -> list[int]:
        """Number of examples of each client."""
        return [len(places) for places in self.clients]

    @property
    def owners(self) -> IntArray:
        """The client of each example, (N,)."""
        owners = np.empty(self.samples, dtype=np.int64)
        for client, places in enumerate(self.clients):
            owners[places] = client
        return owners

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash((self.samples, self.fingerprint, tuple(self.sizes)))

    def _content(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "samples": self.samples,
            "fingerprint": self.fingerprint,
            "rule": dict(self.rule),
            "clients": [places.tolist() for places in self.clients],
        }

    def counts(self, data: Dataset) -> FloatArray:
        """Return how many examples of each class the clients have, (clients, classes)."""
        labels = data.train.labels
        self.check(labels)
        counted = count_groups(labels, self.clients, data.task, len(data.classes))
        return np.stack([count.positive for count in counted])

    def restrict(self, rows: IntArray, labels: npt.NDArray[Any]) -> Partition:
        """Return the partition of a part of the data, such as what validation data leaves.

        Args:
            rows: the rows that stay, in ascending order; they are numbered anew from 0.
            labels: the labels of all rows, for which this partition was made.

        Returns:
            The partition of the rows that stay; every client keeps its number.

        Raises:
            DataError: the rows are out of order or outside, the labels are others, or a client
                loses all of its examples.
        """
        self.check(labels)
        kept = np.asarray(rows, dtype=np.int64)
        if len(kept) == 0 or kept[0] < 0 or kept[-1] >= self.samples or (np.diff(kept) <= 0).any():
            raise DataError(
                f"the rows to keep must ascend within 0 to {self.samples - 1}, each once"
            )
        owners = self.owners[kept]
        for client, size in enumerate(np.bincount(owners, minlength=len(self))):
            if size == 0:
                raise DataError(
                    f"client {client} keeps none of its {self.sizes[client]} samples; give it "
                    "more, or hold out less"
                )
        rest = labels[kept]
        made = group_owners(owners, len(self), rest, {**self.rule, "kept": len(kept)})
        skew = round(measure_skew(rest, made.clients), 6)
        return replace(made, rule={**made.rule, "measured_skew": skew})

    def save(self, path: str | PathLike[str]) -> None:
        """Write the partition as JSON; a file that was there is replaced at once or not at all."""
        with replacing(Path(path)) as file:
            file.write(json.dumps(self._content()).encode())

    @staticmethod
    def load(path: str | PathLike[str]) -> Partition:
        """Read a saved partition; every sample must be there exactly once."""
        try:
            content = json.loads(Path(path).read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"cannot read the partition {path}: {error}") from error
        partition = _parse(content, str(path))
        check_cover(partition.clients, partition.samples, f"partition {path}")
        return partition

    def check(self, labels: npt.NDArray[Any]) -> Partition:
        """Return the partition if it divides the examples of these labels, else raise DataError."""
        if self.samples != len(labels):
            raise DataError(
                f"the partition is of {self.samples} samples, the data has {len(labels)}"
            )
        if self.fingerprint != fingerprint(labels):
            raise DataError(
                f"the partition was made for other labels (SHA-256 {self.fingerprint[:12]}…, "
                f"the data's is {fingerprint(labels)[:12]}…); divide this data again"
            )
        check_cover(self.clients, self.samples, "partition")
        return self


def fingerprint(labels: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of labels, of their shape and values but not of how they are stored."""
    values = labels.astype("<f4") if labels.ndim == 2 else labels.astype("<i8")
    if labels.ndim == 2:
        values[np.isnan(values)] = np.nan  # NaN has many bit patterns
    return hashlib.sha256(f"{labels.shape}".encode() + values.tobytes()).hexdigest()


def group_owners(
    owners: IntArray, clients: int, labels: npt.NDArray[Any], rule: Mapping[str, Any]
) -> Partition:
    """Return the partition in which `owners` names the client of each sample."""
    order = np.argsort(owners, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(owners, minlength=clients))[:-1]
    # np.split gives the same parts, but takes several times as long for many clients.
    bounds = [0, *ends.tolist(), len(order)]
    with pause_collection():
        parts = tuple(order[start:end] for start, end in itertools.pairwise(bounds))
    return Partition(parts, len(labels), fingerprint(labels), rule)


def check_cover(clients: Sequence[IntArray], samples: int, where: str) -> None:
    """Refuse an empty client, a sample outside the data, of two clients, or of none."""
    if not clients:
        raise DataError(f"{where} has no clients")
    holder = np.full(samples, -1, dtype=np.int64)
    for client, places in enumerate(clients):
        if len(places) == 0:
            raise DataError(f"{where}: client {client} is empty")
        if places.min() < 0 or places.max() >= samples:
            raise DataError(
                f"{where}: client {client} holds samples {places.min()} to {places.max()}; "
                f"allowed: 0 to {samples - 1}"
            )
        _check_single(places, holder, client, where)
        holder[places] = client
    if (holder < 0).any():
        raise DataError(
            f"{where}: sample {int(np.argmin(holder))} belongs to no client "
            f"({int((holder < 0).sum())} such samples)"
        )


def _check_single(places: IntArray, holder: IntArray, client: int, where: str) -> None:
    taken = places[holder[places] >= 0]
    if len(taken):
        raise DataError(
            f"{where}: client {client} holds sample {taken[0]}, "
            f"which client {holder[taken[0]]} holds too"
        )
    if (np.diff(places) <= 0).any():
        raise DataError(f"{where}: client {client} holds a sample twice, or is not sorted")


def _parse(content: Any, path: str) -> Partition:
    """Return the record of parsed JSON, whatever it may hold."""
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise DataError(f"{path} is not a partition: it must begin with the format {_FORMAT!r}")
    samples, labels, rule = (content.get(key) for key in ("samples", "fingerprint", "rule"))
    clients = content.get("clients")
    if type(samples) is not int or not isinstance(labels, str) or not isinstance(rule, dict):
        raise DataError(f"{path}: samples, fingerprint or rule is missing or of a wrong kind")
    if not isinstance(clients, list):
        raise DataError(f"{path}: clients is missing or no list")
    places = tuple(_places(client, number, path) for number, client in enumerate(clients))
    held = sum(len(client) for client in places)
    if samples != held:
        raise DataError(f"{path} is of {samples} samples, but its clients hold {held}")
    return Partition(places, samples, labels, rule)


def _places(client: Any, number: int, path: str) -> IntArray:
    if not isinstance(client, list) or not all(type(place) is int for place in client):
        raise DataError(f"{path}: client {number} is not a list of whole numbers")
    try:
        return np.array(client, dtype=np.int64)
    except OverflowError as error:
        raise DataError(f"{path}: client {number} holds a number beyond 64 bits") from error
