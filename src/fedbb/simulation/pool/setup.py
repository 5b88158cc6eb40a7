"""What a worker needs to begin: a network, a method, a plan, and data it maps but does not copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from fedbb.data.dataset import Dataset, Examples
from fedbb.evaluation.evaluator import Scorer
from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.records import IntArray
from fedbb.simulation.client_state import ClientStateStore
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool.shared_memory import Array, Block, Place, share
from fedbb.training.config import ClientDataset, LocalConfig

SCORED = "scored."
"""Begins the names of arrays of images that states are scored on."""

_NOTHING = Examples(np.empty(0), np.empty(0))


@dataclass(frozen=True, eq=False)
class Shares(Sequence[ClientDataset]):
    """Every client's part of a data set: one array of rows, cut where a client's begin."""

    dataset: Dataset
    rows: IntArray
    starts: IntArray

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, client: int) -> ClientDataset: ...
    @overload
    def __getitem__(self, client: slice) -> list[ClientDataset]: ...
    def __getitem__(self, client: int | slice) -> ClientDataset | list[ClientDataset]:
        if isinstance(client, slice):
            return [self[number] for number in range(*client.indices(len(self)))]
        if not 0 <= client < len(self):
            raise IndexError(f"there is no client {client} among {len(self)}")
        return ClientDataset(self.dataset, self.rows[self.starts[client] : self.starts[client + 1]])


@dataclass(frozen=True, eq=False)
class Setup:
    """All but the arrays, which are told by their places in a block of shared memory."""

    model: NetworkModule
    method: Method
    plan: LocalConfig
    store: ClientStateStore
    dataset: Dataset
    batch_size: int
    places: Mapping[str, Place]

    def assemble(self, handle: int) -> tuple[Inline, Scorer]:
        """Return an engine and a scorer on one network, over the arrays behind a handle."""
        arrays = Block(handle, self.places).arrays()
        model, shares = self.model.to(self.plan.device), self.shares(arrays)
        scored = {
            name.removeprefix(SCORED): Examples(array, np.empty(len(array)))
            for name, array in arrays.items()
            if name.startswith(SCORED)
        }
        engine = Inline(model, shares, self.method, self.plan, self.store)
        return engine, Scorer(model, shares.dataset, scored, self.batch_size, self.plan.device)

    def shares(self, arrays: Mapping[str, Array]) -> Shares:
        """Return every client's part of the data in these arrays."""
        train = Examples(arrays["train.images"], arrays["train.labels"])
        return Shares(replace(self.dataset, train=train), arrays["rows"], arrays["starts"])


def share_data(shares: Sequence[ClientDataset], scored: Mapping[str, Examples]) -> Block:
    """Put what workers read into shared memory: training data, each client's rows, test images."""
    dataset = shares[0].dataset
    sizes = [len(share) for share in shares]
    arrays: dict[str, Array] = {
        "train.images": dataset.train.images,
        "train.labels": dataset.train.labels,
        "rows": np.concatenate([share.indices for share in shares]),
        "starts": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    }
    return share(arrays | {SCORED + name: part.images for name, part in scored.items()})


def bare(dataset: Dataset) -> Dataset:
    """Return a data set without its examples."""
    return replace(dataset, train=_NOTHING, test=_NOTHING)
