"""Numbers of the ring cut into 16-bit pieces, so small that sums of them fit a BFV plaintext."""

from __future__ import annotations

import numpy as np

from fedbb.records import IntArray
from fedbb.secagg.primitives.fixed_point import RingArray

LIMBS = 4
BITS = 16


def to_limbs(vector: RingArray) -> IntArray:
    """Return the pieces of each number, lowest first, one number after the other.

    >>> to_limbs(np.array([1 + (2 << 16)], dtype=np.uint64)).tolist()
    [1, 2, 0, 0]
    """
    shifts = np.arange(LIMBS, dtype=np.uint64) * np.uint64(BITS)
    pieces = (vector[:, None] >> shifts) & np.uint64(2**BITS - 1)
    return pieces.astype(np.int64).reshape(-1)


def from_limbs(sums: IntArray) -> RingArray:
    """Return the numbers of the ring that sums of pieces stand for; carries find their place."""
    shifts = np.arange(LIMBS, dtype=np.uint64) * np.uint64(BITS)
    pieces = sums.astype(np.uint64).reshape(-1, LIMBS)
    return np.asarray((pieces << shifts).sum(axis=1, dtype=np.uint64))
