"""Masks: AES-256-CTR as a stream of numbers of the ring, added to a vector or taken away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from fedbb.secagg.primitives.fixed_point import WORD, RingArray

CHUNK = 2**14
"""Numbers masked at a time: with the stream's they fit into a core's own cache."""

_START = bytes(16)  # each key makes one stream only, so all may begin with the same counter
_BLOCK = 16


def add_masks(vector: RingArray, plus: Sequence[bytes], minus: Sequence[bytes]) -> None:
    """Add the streams of some keys to a vector, in place, and take those of others away."""
    streams = [
        *((Cipher(AES256(key), CTR(_START)).encryptor(), np.add) for key in plus),
        *((Cipher(AES256(key), CTR(_START)).encryptor(), np.subtract) for key in minus),
    ]
    zeros = memoryview(bytes(CHUNK * WORD.itemsize))
    room = bytearray(CHUNK * WORD.itemsize + _BLOCK - 1)
    for start in range(0, len(vector), CHUNK):
        piece = vector[start : start + CHUNK]
        nothing = zeros[: piece.nbytes]
        mask = np.frombuffer(room, WORD, len(piece))
        for stream, join in streams:
            stream.update_into(nothing, room)
            join(piece, mask, out=piece)
