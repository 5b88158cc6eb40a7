"""Model states: taken from a network, put back, averaged, named for files and messages, hashed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedbb._util.files import parse_json
from fedbb._util.text import quote
from fedbb.records import ClientState, ModelState, Tensors

Arrays = Mapping[str, npt.NDArray[Any]]

_BFLOAT16 = ":bfloat16"
"""Ends the name of an array that stands for a tensor of a type which numpy has not."""

PARAMS, BUFFERS = "params.", "buffers."
"""Prefixes of a state's entries wherever both kinds are stored or sent together."""

MODEL = "model."
OPTIMIZER = ("momentum.", "exp_avg.", "exp_avg_sq.", "step.")
KEPT = "kept."
"""Prefixes of the parts of a client's state: its model, each quantity of its optimizer, and what
penalties keep."""


def snapshot(model: nn.Module) -> ModelState:
    """Return a copy of the model's parameters and persistent buffers, on the CPU."""
    # A shared parameter is trained under each of its names.
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    # state_dict holds references: without the clone, later training would change the snapshot.
    copies = {name: at_rest(tensor) for name, tensor in model.state_dict().items()}
    return ModelState(
        params={k: v for k, v in copies.items() if k in trained},
        buffers={k: v for k, v in copies.items() if k not in trained},
    )


def at_rest(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU, in the one memory format that files and messages keep."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def restore(model: nn.Module, state: ModelState) -> None:
    """Put a state into the model, in place."""
    model.load_state_dict({**state.params, **state.buffers})


def replace_entries(state: ModelState, entries: Tensors) -> ModelState:
    """Return a state with these entries in place of its own of the same names."""
    if not entries:
        return state
    params, buffers = (
        {name: entries.get(name, tensor) for name, tensor in part.items()}
        for part in (state.params, state.buffers)
    )
    return ModelState(params, buffers)


def flatten_state(state: ModelState, prefix: str = "") -> dict[str, Tensor]:
    """Return a state's tensors by name, parameters under "params.", buffers under "buffers."."""
    parts = ((PARAMS, state.params), (BUFFERS, state.buffers))
    return {prefix + kind + name: tensor for kind, part in parts for name, tensor in part.items()}


def unflatten_state(tensors: Mapping[str, Tensor], prefix: str = "") -> ModelState:
    """Return the state that `flatten_state` flattened with this prefix; other names are ignored."""
    return ModelState(select(tensors, prefix + PARAMS), select(tensors, prefix + BUFFERS))


def state_to_arrays(state: ModelState) -> dict[str, npt.NDArray[Any]]:
    """Return the entries of `flatten_state` as numpy arrays that share the tensors' memory.

    numpy has no bfloat16: such an entry goes as float32, of which each of its values is one, under
    a name that says so.
    """
    entries = flatten_state(state).items()
    return {
        name + _BFLOAT16 if tensor.dtype is torch.bfloat16 else name: _array(tensor)
        for name, tensor in entries
    }


def state_from_arrays(arrays: Arrays) -> ModelState:
    """Return the state of arrays that `state_to_arrays` named; it shares their memory."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return unflatten_state(
        {
            name.removesuffix(_BFLOAT16): tensor.bfloat16() if name.endswith(_BFLOAT16) else tensor
            for name, tensor in tensors.items()
        }
    )


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def flatten_client_state(state: ClientState) -> dict[str, Tensor]:
    """Return the tensors of a client's state by name: "model.params.…", "momentum.…", "kept.…"."""
    model = {} if state.model is None else flatten_state(state.model, MODEL)
    return (
        model
        | add_prefix(KEPT, state.tensors)
        | {
            f"{kind}.{name}": tensor
            for kind, tensors in state.optimizer.items()
            for name, tensor in tensors.items()
        }
    )


def unflatten_client_state(tensors: Mapping[str, Tensor]) -> ClientState:
    """Return the client's state that `flatten_client_state` flattened."""
    model = unflatten_state(tensors, MODEL)
    parts = {prefix.removesuffix("."): select(tensors, prefix) for prefix in OPTIMIZER}
    return ClientState(
        model if model.params else None,
        {kind: part for kind, part in parts.items() if part},
        select(tensors, KEPT),
    )


def add_prefix(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    """Return the entries under names that begin with a prefix."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def select(tensors: Tensors, prefix: str) -> dict[str, Tensor]:
    """Return the entries whose names begin with a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


class Mixture:
    """The weighted sum Σ w·θ of states that arrive one by one, so that only the sum is held.

    Float entries are summed in float64 in the order of arrival, and rounded to their own type once,
    at the end: the mean of equal float32 models is that model, bit for bit. Integer entries, such
    as batch counters, take the largest value, since a weighted mean of them is not an integer.
    """

    def __init__(self) -> None:
        self.number = 0
        self._first: ModelState | None = None
        self._totals: dict[str, Tensor] = {}

    def add(self, state: ModelState, weight: float) -> None:
        """Add w·θ; ValueError if the state's entries differ from the first one's in kind."""
        if self._first is None:
            self._first = _shapes(state)
        elif (name := find_mismatch(self._first, state)) is not None:
            raise ValueError(f"state {self.number + 1} differs from the first in {name!r}")
        for name, tensor in flatten_state(state).items():
            wide = torch.complex128 if tensor.is_complex() else torch.float64
            if not (tensor.is_floating_point() or tensor.is_complex()):
                before = self._totals.get(name, tensor)
                self._totals[name] = torch.maximum(before, tensor)
            elif self.number == 0:
                # The first term starts the sum: 0.0 + -0.0 would lose the sign of a zero.
                self._totals[name] = tensor.to(wide) * weight
            else:
                self._totals[name].add_(tensor.to(wide), alpha=weight)
        self.number += 1

    def total(self) -> ModelState:
        """Return the sum so far, in the types of the states."""
        if self._first is None:
            raise ValueError("there are no states to mix")
        types = flatten_state(self._first)
        # A copy even where the type is float64 already: the sum may go on.
        totals = {
            name: total.to(types[name].dtype, copy=True) for name, total in self._totals.items()
        }
        return unflatten_state(totals)


def mix(states: Iterable[ModelState], weights: Iterable[float]) -> ModelState:
    """Return Σ w·θ in the given order."""
    mixture = Mixture()
    for state, weight in zip(states, weights, strict=True):
        mixture.add(state, float(weight))
    return mixture.total()


def find_mismatch(one: ModelState, two: ModelState) -> str | None:
    """Return the name of an entry that two states do not share with one type and shape, or None.

    torch would broadcast or cast such entries silently.
    """
    return find_difference(one.params, two.params) or find_difference(one.buffers, two.buffers)


def find_difference(one: Tensors, two: Tensors) -> str | None:
    """Return a name that two mappings do not share with one type and shape, or None."""
    forms = [
        {(name, tensor.dtype, tensor.shape) for name, tensor in part.items()} for part in (one, two)
    ]
    return min((name for name, *_ in forms[0] ^ forms[1]), default=None)


def is_finite(state: ModelState) -> bool:
    """Return whether every number of the state is finite."""
    tensors = (*state.params.values(), *state.buffers.values())
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def digest(state: ModelState) -> str:
    """Return the SHA-256 of names, types, shapes and values."""
    total = hashlib.sha256()
    for part in (state.params, state.buffers):
        for name in sorted(part):
            tensor = part[name].contiguous()
            total.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
            total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _shapes(state: ModelState) -> ModelState:
    """Return a state of the same names, types and shapes that holds no values."""
    params, buffers = (
        {name: tensor.to("meta") for name, tensor in part.items()}
        for part in (state.params, state.buffers)
    )
    return ModelState(params, buffers)


TYPES = frozenset(
    [
        *("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8"),
        *("<f2", "<f4", "<f8", "<c8", "<c16"),
    ]
)
"""Types of values, as numpy writes them."""

MOST_DIMENSIONS = 32
_LENGTH = 8


def pack_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return named arrays as one block; their order is kept.

    Raises:
        ValueError: An array is not of one of the `TYPES`.
    """
    for name, array in arrays.items():
        if array.dtype.str not in TYPES:
            raise ValueError(f"{name} is of type {array.dtype}, which cannot be sent")
    entries = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    header = json.dumps(entries, separators=(",", ":")).encode()
    values = (np.ascontiguousarray(array).data.cast("B") for array in _filled(arrays))
    return b"".join([len(header).to_bytes(_LENGTH, "little"), header, *values])


def unpack_arrays(block: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an untrusted block, each with memory of its own.

    Raises:
        ValueError: The block is not exactly what its header says.
    """
    start = _LENGTH + int.from_bytes(block[:_LENGTH], "little")
    if len(block) < start or len(block) < _LENGTH:
        raise ValueError("it ends within its header")
    entries = parse_json(block[_LENGTH:start])
    if not isinstance(entries, list):
        raise ValueError("its header is not a list")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for entry in entries:
        name, dtype, shape = _read_entry(entry)
        if name in arrays:
            raise ValueError(f"it holds {quote(name, 60)} twice")
        count = math.prod(shape)
        end = start + count * dtype.itemsize
        if end > len(block):
            raise ValueError(f"it ends within {quote(name, 60)}")
        values = np.frombuffer(block, dtype, count, start) if count else np.empty(0, dtype)
        arrays[name] = values.reshape(shape).copy()
        start = end
    if start != len(block):
        raise ValueError("it is longer than its header says")
    return arrays


def _read_entry(entry: object) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    """Return name, type and shape of an array in an untrusted header."""
    if not isinstance(entry, list) or len(entry) != 3:
        raise ValueError("an entry of its header is not name, type and shape")
    name, kind, shape = entry
    if not isinstance(name, str) or not isinstance(kind, str) or kind not in TYPES:
        raise ValueError(f"{quote(kind, 60)} is not a type of values, or a name is missing")
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"{quote(name, 60)} has no shape of at most {MOST_DIMENSIONS} dimensions")
    if not all(type(length) is int and 0 <= length < 2**48 for length in shape):
        raise ValueError(f"{quote(name, 60)} has a length that is not possible")
    return name, np.dtype(kind), tuple(shape)


def _filled(arrays: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return the arrays that hold values; a memoryview of an empty one cannot be cast."""
    return [array for array in arrays.values() if array.size]
