"""The idx format of MNIST and its kin: a short header, then whole numbers of one byte."""

from __future__ import annotations

import math
import struct

import numpy as np
import numpy.typing as npt

from fedbb.errors import DataError

_UNSIGNED_BYTE = 0x08


def parse_idx(content: bytes, where: str) -> npt.NDArray[np.uint8]:
    """Return the array of an unpacked idx file; its length must be what the header says."""
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTE]):
        raise DataError(
            f"{where} is no idx file of unsigned bytes: it begins {content[:4].hex()!r}"
        )
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(f"{where} ends inside its header")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if math.prod(shape) != len(content) - start:
        raise DataError(f"{where} says {shape} but holds {len(content) - start} bytes")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
