"""States side by side: the clients' values of every coordinate, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fedbb.records import ModelState

WIDTH = 2**16
"""Coordinates in a block, so that many clients of a large model are never held twice."""


def blocks(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the clients' values of one entry as float64, (clients, coordinates)."""
    rows = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, len(rows[0]), WIDTH):
        yield torch.stack([row[start : start + WIDTH].double() for row in rows])


def float_entries(states: Sequence[ModelState]) -> Iterator[list[Tensor]]:
    """Yield the clients' tensors of every entry that is a float: parameters, then buffers."""
    for parts in ([state.params for state in states], [state.buffers for state in states]):
        for name, first in parts[0].items():
            if first.is_floating_point():
                yield [part[name] for part in parts]


def join_coordinates(states: Sequence[ModelState], join: Callable[[Tensor], Tensor]) -> ModelState:
    """Return the state each of whose coordinates `join` makes of the clients' values.

    `join` takes a block (clients, coordinates) to (coordinates,); integer entries take the largest
    value, as in a mean.
    """
    for number, state in enumerate(states[1:], start=2):
        name = difference(states[0], state)
        if name is not None:
            raise ValueError(f"state {number} differs from the first in {name!r}")
    return ModelState(
        _join([state.params for state in states], join),
        _join([state.buffers for state in states], join),
    )


def difference(one: ModelState, two: ModelState) -> str | None:
    """Return the name of an entry in which two states differ in kind, if there is one."""
    for first, second in ((one.params, two.params), (one.buffers, two.buffers)):
        forms = [
            {(name, tensor.dtype, tensor.shape) for name, tensor in part.items()}
            for part in (first, second)
        ]
        if forms[0] != forms[1]:
            return min(name for name, *_ in forms[0] ^ forms[1])
    return None


def _join(
    parts: Sequence[Mapping[str, Tensor]], join: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    return {name: _join_entry([part[name] for part in parts], join) for name in parts[0]}


def _join_entry(tensors: Sequence[Tensor], join: Callable[[Tensor], Tensor]) -> Tensor:
    first = tensors[0]
    if not first.is_floating_point():
        return torch.stack(list(tensors)).amax(dim=0)
    # Begun with an empty block, for an entry may have no coordinates at all.
    joined = [torch.empty(0, dtype=torch.float64), *map(join, blocks(tensors))]
    return torch.cat(joined).reshape(first.shape).to(first.dtype)
