"""Named arrays as one block of bytes, since Flower takes a request or two for every array it sends.

The block is the length of the header (8 bytes, little-endian), the header, and the values of all
arrays one after the other in C order. The header is a JSON list with name, type and shape of each
array. A block is untrusted: nothing in it is executed, and no array is larger than the block.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb._util.files import parse_json
from fedbb._util.text import quote

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
        raise ValueError("its header is no list")
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
        raise ValueError(f"{quote(kind, 60)} is no type of values, or a name is missing")
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"{quote(name, 60)} has no shape of at most {MOST_DIMENSIONS} dimensions")
    if not all(type(length) is int and 0 <= length < 2**48 for length in shape):
        raise ValueError(f"{quote(name, 60)} has a length that is not possible")
    return name, np.dtype(kind), tuple(shape)


def _filled(arrays: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return the arrays that hold values; a memoryview of an empty one cannot be cast."""
    return [array for array in arrays.values() if array.size]
