"""The messages between the pool and its workers as bytes, and a buffer for early ones."""

from __future__ import annotations

import pickle
import tempfile
import traceback
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, BinaryIO, Self

import torch
from torch import Tensor

from fedbb.errors import RunError
from fedbb.records import ClientUpdate, ModelState, Tensors
from fedbb.state import flatten_state, unflatten_state


class ReplyKind(Enum):
    """What happens to a task; a worker's message begins with the value."""

    STARTED = b">"
    EVENT = b"."
    DONE = b"+"
    FAILED = b"-"
    CRASHED = b"x"


@dataclass(frozen=True)
class WorkerReply:
    """What happened to a task of a batch.

    Args:
        task: its number in the batch.
        kind: what happened; DONE, FAILED and CRASHED end the task.
        content: the result (DONE), a packed exception (FAILED), the cause of death of its last
            worker process (CRASHED), or whatever the task reports on its way (EVENT).
    """

    task: int
    kind: ReplyKind
    content: bytes = b""


@dataclass(frozen=True)
class TrainTask:
    """Train a client from the round's state; `state_round` is the round its own state is from.

    With `measure` it only computes the statistics of that state. `start` is the packed state of a
    client that does not start from the round's.
    """

    client: int
    round: int
    seed: int
    state_round: int | None
    measure: bool = False
    start: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"client {self.client} in round {self.round}"


@dataclass(frozen=True)
class PredictTask:
    """Predict the logits of some examples by the round's state.

    `network` is the number of the network, where clients have different ones.
    """

    part: str
    start: int
    stop: int
    network: int = 0

    def __str__(self) -> str:
        return f"scoring of {self.part} examples {self.start} to {self.stop}"


WorkerTask = TrainTask | PredictTask


def pack(value: Any) -> bytes:
    """Return a record as bytes; tensors go as plain numbers, not as shared memory."""
    return pickle.dumps(value, protocol=5)


def unpack(message: bytes) -> Any:
    """Return what was packed by a process that this one started, or that started this one."""
    return pickle.loads(message)  # noqa: S301


def pack_setup(setup: Any) -> bytes:
    """Return what workers begin with as bytes, with the user's own classes and functions.

    A network, loss or function of a script, a notebook or another function cannot be imported in a
    worker; it is sent by value.

    Raises:
        RunError: something in it cannot be pickled.
    """
    try:
        message = pack(setup)
    except Exception:
        message = b""
    if message and b"__main__" not in message:
        return message
    # Imported here, since few set-ups need it.
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(setup, protocol=5))
    except Exception as error:
        raise RunError(
            f"the network, the method or the data cannot be sent to worker processes: {error}; "
            "keep open files, locks and generators out of them, or train in this process "
            "(workers = 0)"
        ) from error


def unpack_setup(message: bytes) -> Any:
    """Return the set-up in these bytes; RunError if this process cannot import a part of it."""
    try:
        return unpack(message)
    except (ImportError, AttributeError) as error:
        raise RunError(
            f"a worker process cannot load the network, the method or the data: {error}; define "
            "it in a module that can be imported from anywhere, or in the script that is run"
        ) from error


def pack_state(state: ModelState, broadcast: Tensors) -> bytes:
    """Return a state, and what is broadcast beside it, as bytes."""
    return pack((_plain(flatten_state(state)), _plain(broadcast)))


def unpack_state(message: bytes) -> tuple[ModelState, dict[str, Tensor]]:
    """Return the state in these bytes, and what is broadcast beside it."""
    state, broadcast = unpack(message)
    return unflatten_state(_tensors(state)), _tensors(broadcast)


def pack_update(update: ClientUpdate, *, kept: bool) -> bytes:
    """Return an update as bytes, and whether the client kept a state of its own."""
    facts = (update.client, update.steps, update.effective_steps, update.train_loss, update.seconds)
    model, statistics = _plain(flatten_state(update.state)), _plain(update.statistics)
    return pack((facts, model, statistics, update.message_bytes, kept))


def unpack_update(message: bytes) -> tuple[ClientUpdate, bool]:
    """Return the update in these bytes, and whether the client kept a state of its own."""
    (client, steps, effective, loss, seconds), model, statistics, sent, kept = unpack(message)
    state = unflatten_state(_tensors(model))
    found = _tensors(statistics)
    update = ClientUpdate(client, state, steps, effective, loss, seconds, found, sent_bytes=sent)
    return update, kept


def pack_error(error: Exception) -> bytes:
    """Return an exception as bytes, with its place in the worker as a note."""
    place = "".join(traceback.format_exception(error))
    error.add_note(f"in a worker process:\n{place}")
    try:
        message = pack(error)
        unpack(message)
    except Exception:
        message = pack(RuntimeError(f"in a worker process:\n{place}"))
    return message


# Type, shape and bytes: numpy has no bfloat16, and torch's own way of pickling takes many pieces.
Plain = dict[str, tuple[torch.dtype, torch.Size, Any]]


def _plain(tensors: Tensors) -> Plain:
    return {
        name: (
            tensor.dtype,
            tensor.shape,
            tensor.contiguous().reshape(-1).view(torch.uint8).numpy(),
        )
        for name, tensor in tensors.items()
    }


def _tensors(plain: Plain) -> dict[str, Tensor]:
    return {
        name: torch.from_numpy(content).view(dtype).reshape(shape)
        for name, (dtype, shape, content) in plain.items()
    }


class SpillBuffer:
    """Holds messages by number; those beyond `limit` are spilled to an unnamed temporary file.

    Clients of very different sizes finish out of order. Without the limit a slow first client
    would make the parent hold the models of all others.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: dict[int, bytes] = {}
        self._spilled: dict[int, tuple[int, int]] = {}
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, number: int, message: bytes) -> None:
        """Hold a message."""
        if len(self._held) < self.limit:
            self._held[number] = message
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the buffer
        place = self._file.seek(0, 2)
        self._file.write(message)
        self._spilled[number] = (place, len(message))

    def __contains__(self, number: int) -> bool:
        return number in self._held or number in self._spilled

    def take(self, number: int) -> bytes:
        """Return a message and drop it."""
        if number in self._held:
            return self._held.pop(number)
        place, size = self._spilled.pop(number)
        assert self._file is not None
        self._file.seek(place)
        message = self._file.read(size)
        if not self._spilled:
            self._file.truncate(0)
        return message
