"""A worker that trains clients and scores states: the shared memory it reads, and its tasks."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedbb.data.dataset import Dataset, Examples
from fedbb.data.mapped import Inputs, MappedRows
from fedbb.evaluation.metrics import Scorer
from fedbb.methods import Method
from fedbb.records import FloatArray, IntArray, LabelCounts, ModelState, Tensors
from fedbb.simulation.inline import ClientStateStore, Inline
from fedbb.simulation.pool.protocol import (
    PredictTask,
    TrainTask,
    WorkerTask,
    pack,
    pack_update,
    unpack_state,
)
from fedbb.state import restore
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import ClientDataset

Array = npt.NDArray[Any]

_ALIGNMENT = 64
_ROWS = ".rows"
"""Ending of the name of the rows that are in use of a mapped array."""


@dataclass(frozen=True)
class Place:
    """Where an array lies: in the shared block, or in a file that is memory-mapped already."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    file: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Block:
    """Arrays by name in shared memory; its file handle can be sent to another process."""

    handle: int
    places: Mapping[str, Place]

    def arrays(self) -> dict[str, Any]:
        """Return the arrays, read-only, without copying them."""
        size = os.fstat(self.handle).st_size
        memory = mmap.mmap(self.handle, size, prot=mmap.PROT_READ) if size else b""
        arrays: dict[str, Any] = {
            name: _array(memory, place) for name, place in self.places.items()
        }
        for name in [name for name in arrays if name.endswith(_ROWS)]:
            whole = name.removesuffix(_ROWS)
            arrays[whole] = MappedRows(arrays[whole], arrays.pop(name))
        return arrays

    def close(self) -> None:
        """Close the handle; arrays taken from it stay valid."""
        os.close(self.handle)


def share_arrays(shared: Mapping[str, Inputs]) -> Block:
    """Copy arrays into shared memory, except those that lie in a memory-mapped file already."""
    arrays: dict[str, Array] = {}
    for name, array in shared.items():
        if isinstance(array, MappedRows):
            arrays |= {name: array.base, name + _ROWS: array.rows}
        else:
            arrays[name] = array
    places: dict[str, Place] = {}
    end = 0
    for name, array in arrays.items():
        place = _mapped(array)
        if place is None:
            place = Place(end, array.dtype.str, array.shape)
            end = -(-(end + place.size) // _ALIGNMENT) * _ALIGNMENT
        places[name] = place
    handle = _anonymous()
    os.ftruncate(handle, end)
    if end:
        with mmap.mmap(handle, end) as memory:
            for name, place in places.items():
                if place.file is None:
                    _view(memory, place)[...] = arrays[name]
    return Block(handle, places)


def _anonymous() -> int:
    """Return a handle to unnamed memory, which no crash can leave behind."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedbb")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _array(memory: mmap.mmap | bytes, place: Place) -> Array:
    if place.file is not None:
        return np.memmap(place.file, place.dtype, "r", place.offset, place.shape)
    return _view(memory, place)


def _view(memory: mmap.mmap | bytes, place: Place) -> Array:
    if place.size == 0:
        return np.empty(place.shape, place.dtype)
    flat = np.frombuffer(memory, np.uint8, place.size, place.offset)
    return flat.view(place.dtype).reshape(place.shape)


def _mapped(array: Array) -> Place | None:
    """Return where in its file a mapped array lies, None if it is not one or has gaps."""
    memory = getattr(array, "_mmap", None)
    if not isinstance(array, np.memmap) or memory is None or array.filename is None:
        return None
    if not array.flags.c_contiguous:
        return None
    # A slice of a mapped array has the offset of the whole, so the place follows from addresses.
    whole = np.frombuffer(memory, np.uint8)
    within = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    begins = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    return Place(begins + within, array.dtype.str, array.shape, str(array.filename))


SCORED = "scored."
"""Prefix of the arrays of images that states are scored on."""

_NO_EXAMPLES = Examples(np.empty(0), np.empty(0))


@dataclass(frozen=True, eq=False)
class ClientDatasets(Sequence[ClientDataset]):
    """The data of every client, over arrays that all clients share.

    Args:
        dataset: the data of all clients.
        rows: the rows of all clients, one client after another.
        starts: where in them each client's rows start, and the end.
        positive: the positive cases of each client by class, (clients, classes).
        negative: its negative ones.
    """

    dataset: Dataset
    rows: IntArray
    starts: IntArray
    positive: FloatArray
    negative: FloatArray

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
        rows = self.rows[self.starts[client] : self.starts[client + 1]]
        counts = LabelCounts(self.positive[client], self.negative[client], len(rows))
        return ClientDataset(self.dataset, rows, counts)


def share_data(clients: Sequence[ClientDataset], scored: Mapping[str, Examples]) -> Block:
    """Put what workers read into shared memory: training data, clients, test images."""
    dataset = clients[0].dataset
    sizes = [len(client) for client in clients]
    arrays: dict[str, Inputs] = {
        "train.images": dataset.train.inputs,
        "train.labels": dataset.train.labels,
        "rows": np.concatenate([client.indices for client in clients]),
        "starts": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "positive": np.stack([client.counts.positive for client in clients]),
        "negative": np.stack([client.counts.negative for client in clients]),
    }
    if dataset.train.teacher is not None:
        arrays["train.teacher"] = dataset.train.teacher
    if dataset.public is not None:
        arrays["public"] = dataset.public
    return share_arrays(arrays | {SCORED + name: part.inputs for name, part in scored.items()})


def without_examples(dataset: Dataset) -> Dataset:
    """Return a data set without its examples."""
    return replace(dataset, train=_NO_EXAMPLES, test=_NO_EXAMPLES, validation=None, public=None)


@dataclass(frozen=True, eq=False)
class TrainingSetup:
    """All that a worker needs except the arrays, which lie in shared memory at `places`."""

    model: nn.Module
    method: Method
    local: LocalConfig
    store: ClientStateStore
    dataset: Dataset
    batch_size: int
    places: Mapping[str, Place]
    by_client: tuple[nn.Module, ...] = ()

    def open(self, number: int, connection: Connection) -> WorkerRuntime:
        """Return, in a worker, an engine and a scorer on one network, over the shared arrays."""
        torch.set_num_threads(self.local.threads)
        if self.local.device == "cuda":  # workers take turns on the graphics cards
            torch.cuda.set_device(number % torch.cuda.device_count())
        arrays = Block(recv_handle(connection), self.places).arrays()
        model, clients = self.model.to(self.local.device), self.clients(arrays)
        scored = {
            name.removeprefix(SCORED): Examples(array, np.empty(len(array)))
            for name, array in arrays.items()
            if name.startswith(SCORED)
        }
        others = tuple(network.to(self.local.device) for network in self.by_client)
        engine = Inline(model, clients, self.method, self.local, self.store, by_client=others)
        scorer = Scorer(model, clients.dataset, scored, self.batch_size, self.local.device, others)
        return WorkerRuntime(engine, scorer)

    def clients(self, arrays: Mapping[str, Any]) -> ClientDatasets:
        """Return every client's part of the data in these arrays."""
        images, labels = arrays["train.images"], arrays["train.labels"]
        train = Examples(images, labels, teacher=arrays.get("train.teacher"))
        parts = (arrays[name] for name in ("rows", "starts", "positive", "negative"))
        dataset = replace(self.dataset, train=train, public=arrays.get("public"))
        return ClientDatasets(dataset, *parts)


@dataclass
class WorkerRuntime:
    """The engine and the scorer of a worker, and what its tasks start from."""

    engine: Inline
    scorer: Scorer
    state: ModelState | None = None
    broadcast: Tensors = field(default_factory=dict)

    def load_state(self, state: bytes) -> None:
        """Start the following tasks from this state, and what is broadcast beside it."""
        self.state, self.broadcast = unpack_state(state)

    def run(self, task: WorkerTask, report: Callable[[bytes], None]) -> bytes:
        """Return the packed result of a task."""
        assert self.state is not None
        match task:
            case TrainTask():
                return self._train(task, self.state)
            case PredictTask():
                scorer = self.scorer.of(task.network)
                restore(scorer.model, self.state)
                part = scorer.examples[task.part]
                return pack(scorer.predict(part, task.start, task.stop))

    def _train(self, task: TrainTask, state: ModelState) -> bytes:
        state_rounds = self.engine.state_rounds
        # Another worker may have trained this client in the meantime; only the parent knows.
        state_rounds.clear()
        if task.state_round is not None:
            state_rounds[task.client] = task.state_round
        if task.start is not None:
            state, _ = unpack_state(task.start)
        job = TrainJob(
            task.client, task.round, task.seed, state, self.broadcast, measure=task.measure
        )
        (update,) = self.engine.train([job])
        return pack_update(update, kept=state_rounds.get(task.client) == task.round)
