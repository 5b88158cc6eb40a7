"""Fixed-point numbers in the ring of integers modulo 2^64, in which masks cancel exactly.

For BFV a number of the ring is split into 16-bit limbs, whose sums fit a BFV plaintext.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from fedbb.errors import RefusedError
from fedbb.records import FloatArray, IntArray

RingArray = npt.NDArray[np.uint64]

WORD = np.dtype("<u8")
"""The encoding of a number of the ring in messages."""

SUM_BITS = 62
"""Bits that a sum may take, without its sign. A masked sum cannot be checked for overflow."""

LIMBS = 4
LIMB_BITS = 16


def to_ring(
    values: FloatArray | IntArray, *, cohort: int, whole: bool, scale_bits: int
) -> RingArray:
    """Return a client's vector as numbers of the ring; refuse one whose sum could overflow.

    Integers stay as they are, others are rounded to multiples of 2^-`scale_bits`. No error
    message contains a value, because others may read it.
    """
    expected = np.dtype(np.int64 if whole else np.float64)
    if values.ndim != 1 or values.dtype != expected:
        raise RefusedError(f"a vector to be summed must be flat and of {expected} here")
    if whole:
        _check_range(bool(np.all(values <= 2**SUM_BITS // cohort)), f"2^{SUM_BITS}", cohort)
        _check_range(bool(np.all(values >= -(2**SUM_BITS // cohort))), f"2^{SUM_BITS}", cohort)
        return values.astype(np.int64).view(np.uint64)
    if not np.isfinite(values).all():
        raise RefusedError("a number to be summed is not finite")
    bits = SUM_BITS - scale_bits
    limit = 2.0**bits / cohort
    _check_range(bool(np.all(np.abs(values) <= limit)), f"2^{bits}", cohort)
    return np.rint(np.ldexp(values, scale_bits)).astype(np.int64).view(np.uint64)


def from_ring(total: RingArray, *, whole: bool, scale_bits: int) -> FloatArray | IntArray:
    """Return a sum in the ring as integers or as floats."""
    signed = total.view(np.int64)
    return signed.copy() if whole else np.ldexp(signed.astype(np.float64), -scale_bits)


def as_bytes(vector: RingArray) -> memoryview:
    """Return the encoding of a vector in messages."""
    return vector.astype(WORD, copy=False).data.cast("B")


def to_limbs(vector: RingArray) -> IntArray:
    """Return the 16-bit limbs of each number, lowest first, one number after the other.

    >>> to_limbs(np.array([1 + (2 << 16)], dtype=np.uint64)).tolist()
    [1, 2, 0, 0]
    """
    shifts = np.arange(LIMBS, dtype=np.uint64) * np.uint64(LIMB_BITS)
    pieces = (vector[:, None] >> shifts) & np.uint64(2**LIMB_BITS - 1)
    return pieces.astype(np.int64).reshape(-1)


def from_limbs(sums: IntArray) -> RingArray:
    """Return the numbers of the ring from sums of limbs; carries are propagated."""
    shifts = np.arange(LIMBS, dtype=np.uint64) * np.uint64(LIMB_BITS)
    pieces = sums.astype(np.uint64).reshape(-1, LIMBS)
    return np.asarray((pieces << shifts).sum(axis=1, dtype=np.uint64))


def _check_range(within: bool, limit: str, cohort: int) -> None:
    if not within:
        raise RefusedError(
            f"a number to be summed is larger than {limit}/{cohort}, so that a sum over "
            f"{cohort} clients could overflow"
        )


CHUNK = 2**14
"""Numbers masked at a time; together with the key stream they fit into a core's cache."""

_START = bytes(16)  # each key is used for one stream only, so the counter may start at zero
_BLOCK = 16


def add_masks(vector: RingArray, plus: Sequence[bytes], minus: Sequence[bytes]) -> None:
    """Add the AES-256-CTR streams of some keys to a vector and subtract those of others, in place.

    A stream is a mask: as many numbers of the ring as the vector has.
    """
    streams = [
        *((Cipher(AES256(key), CTR(_START)).encryptor(), np.add) for key in plus),
        *((Cipher(AES256(key), CTR(_START)).encryptor(), np.subtract) for key in minus),
    ]
    zeros = memoryview(bytes(CHUNK * WORD.itemsize))
    buffer = bytearray(CHUNK * WORD.itemsize + _BLOCK - 1)
    for start in range(0, len(vector), CHUNK):
        piece = vector[start : start + CHUNK]
        plaintext = zeros[: piece.nbytes]
        mask = np.frombuffer(buffer, WORD, len(piece))
        for stream, combine in streams:
            stream.update_into(plaintext, buffer)
            combine(piece, mask, out=piece)
