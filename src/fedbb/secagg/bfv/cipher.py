"""Integers under homomorphic encryption: BFV by TenSEAL, of the extra `fedbb[he]`.

A ciphertext holds 1024 numbers of the ring as 4096 limbs of 16 bits. The plaintext modulus is a
prime just below 2^30 that allows batching of all limbs, so that sums over 8191 clients still fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tenseal

from fedbb.errors import PrivacyError, RefusedError
from fedbb.secagg.primitives.fixed_point import (
    LIMB_BITS,
    LIMBS,
    RingArray,
    from_limbs,
    to_limbs,
)

DEGREE = 4096
MODULUS = 1073692673
NUMBERS = DEGREE // LIMBS
MOST_CLIENTS = (MODULUS - 1) // 2 // (2**LIMB_BITS - 1)


def draw_context() -> tuple[bytes, bytes]:
    """Return a new context with its secret key, and the same context without it."""
    context = tenseal.context(
        tenseal.SCHEME_TYPE.BFV, poly_modulus_degree=DEGREE, plain_modulus=MODULUS
    )
    kept = {"save_galois_keys": False, "save_relin_keys": False}
    secret = context.serialize(save_public_key=True, save_secret_key=True, **kept)
    public = context.serialize(save_public_key=True, save_secret_key=False, **kept)
    return bytes(secret), bytes(public)


def encrypt(public: bytes, vector: RingArray) -> list[bytes]:
    """Return a vector as ciphertexts; the context must not contain the secret key."""
    context = _load(public)
    if context.has_secret_key():
        raise RefusedError("a context contains its secret key")
    return [
        bytes(tenseal.bfv_vector(context, to_limbs(piece).tolist()).serialize())
        for piece in _pieces(vector)
    ]


@dataclass(eq=False)
class BfvTotal:
    """Adds encrypted vectors without decrypting them."""

    public: bytes
    length: int

    def __post_init__(self) -> None:
        self._context = _load(self.public)
        self._totals: list[Any] = []

    def read(self, parts: Sequence[bytes]) -> list[Any]:
        """Return a client's ciphertexts; refuse invalid ones."""
        vectors = [_vector(self._context, part) for part in parts]
        sizes = [LIMBS * len(piece) for piece in _pieces(np.zeros(self.length, np.uint64))]
        if [vector.size() for vector in vectors] != sizes:
            raise RefusedError("ciphertexts hold another number of values than requested")
        return vectors

    def add(self, parts: Sequence[bytes]) -> None:
        """Add a client's ciphertexts; refuse invalid ones."""
        vectors = self.read(parts)
        if not self._totals:
            self._totals = vectors
        else:
            self._totals = [one + two for one, two in zip(self._totals, vectors, strict=True)]

    def parts(self) -> list[bytes]:
        """Return the ciphertexts of the sum."""
        return [bytes(total.serialize()) for total in self._totals]


def decrypt(secret: bytes, parts: Sequence[bytes]) -> RingArray:
    """Return the sum in these ciphertexts."""
    context = _load(secret)
    if not context.has_secret_key():
        raise PrivacyError("decryption needs the secret key, which is not here")
    pieces = [np.array(_vector(context, part).decrypt(), dtype=np.int64) for part in parts]
    if any(len(piece) % LIMBS or bool(np.any(piece < 0)) for piece in pieces):
        raise RefusedError("the decrypted values are not a sum")
    return np.concatenate([from_limbs(piece) for piece in pieces])


def _pieces(vector: RingArray) -> Iterator[RingArray]:
    return (vector[start : start + NUMBERS] for start in range(0, len(vector), NUMBERS))


def _load(context: bytes) -> Any:
    # TenSEAL reports invalid bytes by any exception of its C++ code.
    try:
        return tenseal.context_from(context)
    except Exception as error:
        raise RefusedError(f"bytes are not a BFV context: {type(error).__name__}") from None


def _vector(context: Any, part: bytes) -> Any:
    try:
        return tenseal.bfv_vector_from(context, part)
    except Exception as error:
        raise RefusedError(f"bytes are not a BFV ciphertext: {type(error).__name__}") from None
