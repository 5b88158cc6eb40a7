"""The compression of a method: what of a client's change is sent, and in which form.

A client adds to its change what it did not send before, sends a part of the sum, and keeps the rest
(error feedback). The model that the server merges is rebuilt from the message alone, by the same
arithmetic at the client and at the server: its bits do not depend on whether a message was sent.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedbb.records import FloatArray, IntArray, ModelState, Tensors
from fedbb.rng import stream
from fedbb.state import BUFFERS, PARAMS, Arrays, state_from_arrays, state_to_arrays

COMPRESSION = "compression"
"""The name under which a client keeps what it did not send."""

Values = Literal["binary", "ternary", "exact"]
Positions = Literal["largest", "drawn"]
Scope = Literal["tensor", "whole"]
Coding = Literal["plain", "golomb"]
Buffers = Literal["sent", "own"]

POSITIONS, SIGNS, VALUES = "positions.", "signs.", "values."
"""Prefixes of the arrays of a message, before the name of a group of numbers."""

WHOLE = "whole"
"""The name of the only group if all parameters are one vector."""


@dataclass(frozen=True, eq=False)
class Compressed:
    """What a client sends of its trained model.

    Args:
        state: the model that the server gets.
        message: what is sent of it, by name; empty if the model is sent as it is.
        kept: what the client keeps for its next round, by parameter.
    """

    state: ModelState
    message: Arrays = field(default_factory=dict)
    kept: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Compression:
    """Models are sent as they are; others derive from it.

    Args:
        clip: the largest L2 norm of what is sent, parameters and float buffers together; None for
            any. A run with differential privacy sets it. What is cut off is kept.
    """

    clip: float | None = field(default=None, kw_only=True)

    @property
    def hides_positions(self) -> bool:
        """Whether what a message leaves out says nothing about the client's data."""
        return True

    @property
    def leaves_unchanged(self) -> bool:
        """Whether a tensor that did not change stays as it is."""
        return True

    @property
    def sends_all(self) -> bool:
        """Whether models are sent as they are."""
        return True

    @property
    def keeps(self) -> bool:
        """Whether clients keep what they do not send."""
        return False

    @property
    def sends_buffers(self) -> bool:
        """Whether buffers are sent; if not, they must stay with the clients."""
        return True

    def compress(
        self, received: ModelState, trained: ModelState, kept: Tensors, seed: int, number: int
    ) -> Compressed:
        """Return what a client sends of its trained model.

        Args:
            received: the model that the round started from.
            trained: the trained model, of the same entries.
            kept: what the client kept of earlier rounds, by parameter; empty before the first.
            seed: the seed of the run.
            number: the number of the round.
        """
        return Compressed(trained)

    def form(self, model: ModelState) -> Arrays:
        """Return arrays with the names, types and shapes of a message."""
        return state_to_arrays(model)

    def expand(self, message: Mapping[str, object], model: ModelState) -> Mapping[str, object]:
        """Return a received message, whatever it holds, in the form that `form` describes.

        Raises:
            ValueError: a part whose length varies cannot be read.
        """
        return message

    def fault(self, message: Arrays, model: ModelState) -> str | None:
        """Return what is wrong with a message of the right form, None if nothing is."""
        return None

    def rebuild(self, received: ModelState, message: Arrays, seed: int, number: int) -> ModelState:
        """Return the model that a message of the right form stands for."""
        return state_from_arrays(message)

    def drawn(self, model: ModelState, seed: int, number: int) -> IntArray | None:
        """Return the places of the parameters that may change in a round, the same for all clients.

        Places are those in one vector of all parameters in the order of their names. None if any
        parameter may change.
        """
        return None

    def sent_bytes(self, model: ModelState) -> int:
        """Return the bytes of a message, without names and headers; expected ones if they vary."""
        return sum(array.nbytes for array in self.form(model).values())


@dataclass(frozen=True)
class Sparse(Compression):
    """A few numbers of each tensor's change: sparse binary or ternary compression, or exact values.

    Of a tensor of N numbers k = max(1, ⌊density·N⌋) are sent, the rest is kept and added to the
    client's next change. Buffers are sent whole, or stay with the client.

    Args:
        density: the share of the numbers that are sent, in (0, 1].
        values: "binary" sends one magnitude with one sign, the mean of the k largest or of the k
            smallest numbers, whichever is larger in size (Sattler et al. 2019; Asad et al. 2020);
            "ternary" the mean magnitude with the sign of each number; "exact" the numbers.
        positions: "largest" numbers, or "drawn" positions, the same for all clients of a round,
            which need not be sent.
        scope: density and magnitudes of each "tensor", or of all parameters as a "whole".
        feedback: whether a client keeps what it does not send; otherwise it is lost.
        coding: "plain" positions are integers of one, two or four bytes; "golomb" ones are the
            gaps between positions in a Golomb code (Sattler et al. 2019), whose length varies.
        buffers: "sent" whole, or each client's "own", which needs a personal part that keeps them.

    Raises:
        ValueError: a value is out of range, or binary values are combined with drawn positions.
    """

    density: float = 0.1
    values: Values = "binary"
    positions: Positions = "largest"
    scope: Scope = "tensor"
    feedback: bool = True
    coding: Coding = "plain"
    buffers: Buffers = "sent"

    def __post_init__(self) -> None:
        if not 0.0 < self.density <= 1.0:
            raise ValueError(f"density must be above 0 and at most 1, not {self.density}")
        choices = {"values": Values, "positions": Positions, "scope": Scope}
        for name, kinds in (choices | {"coding": Coding, "buffers": Buffers}).items():
            if getattr(self, name) not in get_args(kinds):
                allowed = ", ".join(get_args(kinds))
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {allowed}")
        if self.positions == "drawn" and self.values == "binary":
            raise ValueError(
                'values = "binary" chooses the positions by size; positions = "drawn" needs '
                '"exact" or "ternary" values'
            )

    @property
    def hides_positions(self) -> bool:
        """Whether the positions say nothing about the client's data: they are drawn, or all."""
        return self.positions == "drawn" or self.sends_all

    @property
    def leaves_unchanged(self) -> bool:
        """Whether a tensor that did not change stays: not if it shares a magnitude with others."""
        return self.scope == "tensor" or self.values == "exact"

    @property
    def sends_all(self) -> bool:
        """Whether models are sent as they are: every number, exactly."""
        return self.values == "exact" and self.density == 1.0 and self.sends_buffers

    @property
    def sends_buffers(self) -> bool:
        """Whether buffers are sent."""
        return self.buffers == "sent"

    @property
    def keeps(self) -> bool:
        """Whether clients keep what they do not send."""
        return self.feedback and not self.sends_all

    def compress(
        self, received: ModelState, trained: ModelState, kept: Tensors, seed: int, number: int
    ) -> Compressed:
        """Return what a client sends of its trained model, and what it keeps."""
        if self.sends_all:
            return Compressed(trained)
        change = {
            name: trained.params[name].double() - tensor.double()
            for name, tensor in _floats(received.params).items()
        }
        for name, held in kept.items() if self.feedback else ():
            change[name] = change[name] + held.double()
        drawn = self._drawn(received, seed, number)
        groups = {name: vector.numpy() for name, vector in self._join(change).items()}
        message: dict[str, npt.NDArray[Any]] = {}
        for name, vector in groups.items():
            message |= self._encode(name, vector, drawn)
        whole = self._whole(trained)
        if self.clip is not None:
            whole = self._clip(message, received, whole, (seed, number))
        message = self._rounded(message, received) | state_to_arrays(whole)
        state = self.rebuild(received, message, seed, number)
        if not self.feedback:
            return Compressed(state, self._coded(message, received))
        sent = self._split(self._decode(message, received, drawn), received)
        rest = {name: change[name] - part for name, part in sent.items()}
        types = {name: _wire_type(tensor) for name, tensor in received.params.items()}
        kept = {name: tensor.to(types[name]) for name, tensor in rest.items()}
        return Compressed(state, self._coded(message, received), kept)

    def form(self, model: ModelState) -> Arrays:
        """Return arrays with the names, types and shapes of a message."""
        if self.sends_all:
            return state_to_arrays(model)
        message: dict[str, npt.NDArray[Any]] = {}
        for name, size in self._sizes(model).items():
            many = self._number(size)
            if self.positions == "largest":
                message[POSITIONS + name] = np.zeros(many, _index_type(size))
            if self.values == "ternary":
                message[SIGNS + name] = np.zeros(-(-many // 8), np.uint8)
            values = many if self.values == "exact" else min(many, 1)
            message[VALUES + name] = np.zeros(values, self._value_type(model, name))
        return message | state_to_arrays(self._whole(model))

    def expand(self, message: Mapping[str, object], model: ModelState) -> Mapping[str, object]:
        """Return a message with its positions as integers."""
        if self.coding == "plain" or self.sends_all:
            return message
        found = dict(message)
        for name, size in self._sizes(model).items():
            code = found.get(POSITIONS + name)
            if isinstance(code, np.ndarray):
                try:
                    places = decode_positions(code, self._number(size), size)
                except ValueError as error:
                    raise ValueError(f"{POSITIONS}{name} cannot be read: {error}") from error
                found[POSITIONS + name] = places.astype(_index_type(size))
        return found

    def sent_bytes(self, model: ModelState) -> int:
        """Return the bytes of a message; of coded positions those that are expected."""
        total = super().sent_bytes(model)
        if self.coding == "plain" or self.sends_all or self.positions == "drawn":
            return total
        for size in self._sizes(model).values():
            many = self._number(size)
            plain = many * _index_type(size).itemsize
            total += math.ceil(many * expected_bits(many, size) / 8) - plain
        return total

    def fault(self, message: Arrays, model: ModelState) -> str | None:
        """Return what is wrong with a message of the right form: positions that do not rise."""
        for name, size in self._sizes(model).items() if not self.sends_all else ():
            many = self._number(size)
            places = message.get(POSITIONS + name)
            if places is not None and many:
                rising = places.astype(np.int64)
                if np.any(np.diff(rising) <= 0) or rising[-1] >= size:
                    return f"{POSITIONS}{name} are not {many} rising positions below {size}"
            signs = message.get(SIGNS + name)
            if signs is not None and np.any(np.unpackbits(signs)[many:]):
                return f"{SIGNS}{name} has more than {many} signs"
        return None

    def rebuild(self, received: ModelState, message: Arrays, seed: int, number: int) -> ModelState:
        """Return the received model, moved by a message of the right form."""
        if self.sends_all:
            return state_from_arrays(message)
        drawn = self._drawn(received, seed, number)
        sent = self._split(self._decode(message, received, drawn), received)
        whole = state_from_arrays({n: a for n, a in message.items() if n.startswith(_PLAIN)})
        # Where nothing is sent the bits stay: adding 0.0 would lose the sign of a zero.
        params = {
            name: _moved(tensor, sent[name]) if name in sent else whole.params[name]
            for name, tensor in received.params.items()
        }
        buffers = whole.buffers if self.sends_buffers else received.buffers
        return ModelState(params, {name: buffers[name] for name in received.buffers})

    def drawn(self, model: ModelState, seed: int, number: int) -> IntArray | None:
        """Return the places of the drawn parameters in one vector; None if none are drawn."""
        if self.positions != "drawn" or self.sends_all:
            return None
        drawn = self._drawn(model, seed, number)
        floats, start = _floats(model.params), 0
        every: dict[str, list[IntArray]] = {}
        for name in sorted(model.params):
            size = model.params[name].numel()
            group = (WHOLE if self.scope == "whole" else name) if name in floats else ""
            every.setdefault(group, []).append(np.arange(start, start + size))
            start += size
        parts = [
            np.concatenate(places)[drawn[group]] if group else np.concatenate(places)
            for group, places in every.items()
        ]
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def _number(self, size: int) -> int:
        """Return how many numbers of a group are sent."""
        # A product such as 0.29·100 may be a little below the whole number that it stands for.
        return min(size, max(1, math.floor(self.density * size + 1e-9)))

    def _sizes(self, model: ModelState) -> dict[str, int]:
        """Return the size of each group of numbers that are chosen from together."""
        sizes = {name: tensor.numel() for name, tensor in sorted(_floats(model.params).items())}
        return {WHOLE: sum(sizes.values())} if self.scope == "whole" else sizes

    def _drawn(self, model: ModelState, seed: int, number: int) -> dict[str, IntArray]:
        """Return the positions of a round in each group, the same for all clients."""
        if self.positions != "drawn":
            return {}
        rng = stream(seed, "positions", number)
        return {
            name: np.sort(rng.choice(size, self._number(size), replace=False, shuffle=False))
            for name, size in self._sizes(model).items()
        }

    def _encode(
        self, name: str, vector: FloatArray, drawn: Mapping[str, IntArray]
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the message of one group, its values not yet rounded."""
        many, message = self._number(len(vector)), {}
        if name in drawn:
            places, chosen = drawn[name], vector[drawn[name]]
        else:
            places, chosen = self._largest(vector, many)
            message[POSITIONS + name] = places.astype(_index_type(len(vector)))
        if self.values == "exact":
            return {**message, VALUES + name: chosen}
        if self.values == "ternary":
            message[SIGNS + name] = np.packbits(chosen < 0)
            chosen = np.abs(chosen)
        return {**message, VALUES + name: chosen.mean(keepdims=True) if many else chosen}

    def _coded(
        self, message: dict[str, npt.NDArray[Any]], model: ModelState
    ) -> dict[str, npt.NDArray[Any]]:
        """Return a message as it is sent, with its positions coded if they are."""
        if self.coding == "plain":
            return message
        sizes = {POSITIONS + name: size for name, size in self._sizes(model).items()}
        return {
            name: encode_positions(array.astype(np.int64), sizes[name]) if name in sizes else array
            for name, array in message.items()
        }

    def _largest(self, vector: FloatArray, many: int) -> tuple[IntArray, FloatArray]:
        """Return the positions that are sent and their numbers; of equal ones the first."""
        if self.values == "binary":
            top, low = (np.argsort(sign * vector, kind="stable")[:many] for sign in (-1, 1))
            # Equal means go to the largest numbers.
            order = top if vector[top].sum() >= -vector[low].sum() else low
        else:
            order = np.argsort(-np.abs(vector), kind="stable")[:many]
        places = np.sort(order)
        return places, vector[places]

    def _rounded(
        self, message: Mapping[str, npt.NDArray[Any]], model: ModelState
    ) -> dict[str, npt.NDArray[Any]]:
        """Return a message with its values in the types that are sent."""
        return {
            name: array.astype(self._value_type(model, name.removeprefix(VALUES)))
            if name.startswith(VALUES)
            else array
            for name, array in message.items()
        }

    def _clip(
        self,
        message: dict[str, npt.NDArray[Any]],
        received: ModelState,
        whole: ModelState,
        draw: tuple[int, int],
    ) -> ModelState:
        """Scale the values of a message in place, and what is sent whole, to the largest norm."""
        before = self._whole(received)
        moved = {
            name: tensor.double() - {**before.params, **before.buffers}[name].double()
            for name, tensor in {**whole.params, **_floats(whole.buffers)}.items()
        }
        sent = self._decode(message, received, self._drawn(received, *draw))
        squares = [float(part.square().sum()) for part in moved.values()]
        norm = math.sqrt(math.fsum([*squares, *(float(v @ v) for v in sent.values())]))
        if self.clip is None or norm <= self.clip:
            return whole
        factor = self.clip / norm
        for name in message:
            if name.startswith(VALUES):
                message[name] = message[name] * factor

        def scaled(entries: Tensors, given: Tensors) -> dict[str, Tensor]:
            return {
                name: (given[name].double() + factor * moved[name]).to(tensor.dtype)
                if name in moved
                else tensor
                for name, tensor in entries.items()
            }

        return ModelState(
            scaled(whole.params, before.params), scaled(whole.buffers, before.buffers)
        )

    def _decode(
        self, message: Arrays, model: ModelState, drawn: Mapping[str, IntArray]
    ) -> dict[str, FloatArray]:
        """Return what a message says of each group: the numbers sent, and zeros elsewhere."""
        found: dict[str, FloatArray] = {}
        for name, size in self._sizes(model).items():
            many = self._number(size)
            places = drawn[name] if name in drawn else message[POSITIONS + name].astype(np.int64)
            values = message[VALUES + name].astype(np.float64)
            if self.values == "ternary":
                signs = np.unpackbits(message[SIGNS + name])[:many].astype(np.float64)
                values = values * (1.0 - 2.0 * signs)
            dense = np.zeros(size)
            dense[places] = values
            found[name] = dense
        return found

    def _join(self, tensors: Tensors) -> dict[str, Tensor]:
        """Return tensors as the vectors of their groups."""
        flat = {name: tensor.reshape(-1) for name, tensor in sorted(tensors.items())}
        if self.scope == "tensor":
            return flat
        nothing = torch.empty(0, dtype=torch.float64)
        return {WHOLE: torch.cat([nothing, *flat.values()])}

    def _split(self, groups: Mapping[str, FloatArray], model: ModelState) -> dict[str, Tensor]:
        """Return the vectors of groups as tensors by parameter."""
        floats, start = sorted(_floats(model.params).items()), 0
        found: dict[str, Tensor] = {}
        for name, tensor in floats:
            vector = groups[WHOLE if self.scope == "whole" else name]
            part = vector[start : start + tensor.numel()] if self.scope == "whole" else vector
            found[name] = torch.from_numpy(part.copy()).reshape(tensor.shape)
            start += tensor.numel()
        return found

    def _whole(self, model: ModelState) -> ModelState:
        """Return the entries that are sent as they are: buffers, and parameters of other types."""
        floats = _floats(model.params)
        others = {name: tensor for name, tensor in model.params.items() if name not in floats}
        return ModelState(others, model.buffers if self.sends_buffers else {})

    def _value_type(self, model: ModelState, group: str) -> np.dtype[Any]:
        """Return the type in which the values of a group are sent."""
        floats = _floats(model.params)
        held = floats.values() if self.scope == "whole" else [floats[group]]
        wide = any(_wire_type(tensor) is torch.float64 for tensor in held)
        return np.dtype(np.float64 if wide else np.float32)


def remainder_bits(many: int, size: int) -> int:
    """Return b*, the bits of a remainder, for this number of positions below a size.

    b* = 1 + ⌊log₂(ln(φ − 1) / ln(1 − q))⌋ for the share q of the positions and the golden ratio φ.

    >>> remainder_bits(1, 10), remainder_bits(1, 100), remainder_bits(1, 1000)
    (3, 6, 9)
    """
    if many == 0 or many >= size:
        return 0
    golden = (math.sqrt(5) - 1) / 2
    return max(0, 1 + math.floor(math.log2(math.log(golden) / math.log1p(-many / size))))


def expected_bits(many: int, size: int) -> float:
    """Return the mean bits of a coded position if all positions are equally likely.

    >>> [round(expected_bits(1, size), 3) for size in (10, 100, 1000)]
    [4.756, 8.108, 11.495]
    """
    if many == 0 or many >= size:
        return 1.0
    bits = remainder_bits(many, size)
    return bits + 1 / (1 - math.pow(1 - many / size, 2**bits))


def encode_positions(places: IntArray, size: int) -> npt.NDArray[np.uint8]:
    """Return rising positions below a size as a Golomb code of the gaps between them.

    A gap g is ⌊g / 2^b⌋ ones, a zero, and the b bits of the remainder; the last byte ends in zeros.
    """
    bits = remainder_bits(len(places), size)
    gaps = np.diff(places, prepend=-1) - 1
    ones = gaps >> bits
    lengths = ones + 1 + bits
    starts = np.cumsum(lengths) - lengths
    edges = np.zeros(int(lengths.sum()) + 1, np.int64)
    edges[starts] += 1
    edges[starts + ones] -= 1
    code = np.cumsum(edges)[:-1].astype(np.uint8)
    for place in range(bits):
        code[starts + ones + 1 + place] = (gaps >> (bits - 1 - place)) & 1
    return np.packbits(code)


def decode_positions(code: npt.NDArray[Any], many: int, size: int) -> IntArray:
    """Return the positions that `encode_positions` coded.

    Raises:
        ValueError: the code is not that of this number of rising positions below the size.
    """
    bits = remainder_bits(many, size)
    # A hostile code must not take more memory than the longest possible one.
    longest = (many * (bits + 1) + (size >> bits)) // 8 + 1
    if code.dtype != np.uint8 or code.ndim != 1 or len(code) > longest:
        raise ValueError(f"it is not a code of at most {longest} bytes")
    flags = np.unpackbits(code)
    zeros = np.flatnonzero(flags == 0).tolist()
    at, turn, ends, starts = 0, 0, [], []
    for _ in range(many):
        turn = bisect_left(zeros, at, turn)
        if turn == len(zeros) or zeros[turn] + bits >= len(flags):
            raise ValueError(f"it ends before {many} positions")
        starts.append(at)
        ends.append(zeros[turn])
        at = zeros[turn] + 1 + bits
    ended = np.array(ends, np.int64)
    gaps = ended - np.array(starts, np.int64)
    for place in range(bits):
        gaps = 2 * gaps + flags[ended + 1 + place]
    places = np.cumsum(gaps + 1) - 1
    if len(places) and places[-1] >= size:
        raise ValueError(f"a position is not below {size}")
    if len(flags) - at >= 8 or flags[at:].any():
        raise ValueError("it is longer than its positions")
    return places


_PLAIN = (PARAMS, BUFFERS)


def _floats(tensors: Tensors) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def _wire_type(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def _index_type(size: int) -> np.dtype[Any]:
    """Return the smallest type of unsigned integers that holds the positions below a size."""
    return np.min_scalar_type(max(size - 1, 0))


def _moved(tensor: Tensor, change: Tensor) -> Tensor:
    return torch.where(change != 0, (tensor.double() + change).to(tensor.dtype), tensor)
