"""Numbers in the ring of whole numbers modulo 2^64, in which masks cancel without a trace."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedbb.errors import RefusedError
from fedbb.records import FloatArray, IntArray

RingArray = npt.NDArray[np.uint64]

WORD = np.dtype("<u8")
"""A number of the ring as it travels."""

ROOM = 62
"""A sum takes up to so many bits of the 64, its sign aside; nobody can check it once masked."""


def to_ring(
    values: FloatArray | IntArray, *, cohort: int, whole: bool, scale_bits: int
) -> RingArray:
    """Return a client's vector as numbers of the ring, or refuse one whose sum could overflow.

    Whole numbers go as they are, others as the nearest multiple of 2^-`scale_bits`. No value is
    named in an error: whoever reads it must not learn one.
    """
    expected = np.dtype(np.int64 if whole else np.float64)
    if values.ndim != 1 or values.dtype != expected:
        raise RefusedError(f"a vector to be summed must be flat and of {expected} here")
    if whole:
        _check_range(bool(np.all(values <= 2**ROOM // cohort)), f"2^{ROOM}", cohort)
        _check_range(bool(np.all(values >= -(2**ROOM // cohort))), f"2^{ROOM}", cohort)
        return values.astype(np.int64).view(np.uint64)
    if not np.isfinite(values).all():
        raise RefusedError("a number to be summed is not finite")
    bits = ROOM - scale_bits
    limit = 2.0**bits / cohort
    _check_range(bool(np.all(np.abs(values) <= limit)), f"2^{bits}", cohort)
    return np.rint(np.ldexp(values, scale_bits)).astype(np.int64).view(np.uint64)


def from_ring(total: RingArray, *, whole: bool, scale_bits: int) -> FloatArray | IntArray:
    """Return a sum in the ring as the numbers it stands for."""
    signed = total.view(np.int64)
    return signed.copy() if whole else np.ldexp(signed.astype(np.float64), -scale_bits)


def as_bytes(vector: RingArray) -> memoryview:
    """Return a vector of the ring as it travels."""
    return vector.astype(WORD, copy=False).data.cast("B")


def _check_range(within: bool, limit: str, cohort: int) -> None:
    if not within:
        raise RefusedError(
            f"a number to be summed is larger than {limit}/{cohort}, so that a sum over "
            f"{cohort} clients could overflow"
        )
