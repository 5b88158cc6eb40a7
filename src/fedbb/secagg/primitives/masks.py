"""Masks: AES-256-CTR key streams as numbers of the ring, added to a vector or subtracted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from fedbb.secagg.primitives.fixed_point import WORD, RingArray

CHUNK = 2**14
"""Numbers masked at a time; together with the key stream they fit into a core's cache."""

_START = bytes(16)  # each key is used for one stream only, so the counter may start at zero
_BLOCK = 16


def add_masks(vector: RingArray, plus: Sequence[bytes], minus: Sequence[bytes]) -> None:
    """Add the streams of some keys to a vector and subtract those of others, in place."""
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
