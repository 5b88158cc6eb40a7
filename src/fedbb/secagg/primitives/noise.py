"""Gaussian noise from a secret: the same secret gives the same noise, and nobody else can."""

from __future__ import annotations

import numpy as np

from fedbb.errors import PrivacyError
from fedbb.records import FloatArray
from fedbb.secagg.primitives.fixed_point import add_masks
from fedbb.secagg.primitives.keys import KEY, derived_key


def gaussian_noise(secret: bytes, number: int, length: int, deviation: float) -> FloatArray:
    """Return independent Gaussian numbers: Box and Muller's, from a stream of AES-256-CTR.

    A round that is repeated has the same noise: of two different ones the mean would have less.

    Args:
        secret: of one client in one run.
        number: the number of the round.
        length: how many numbers.
        deviation: their standard deviation.
    """
    if len(secret) != KEY:
        raise PrivacyError("this client has no secret to draw noise from")
    half = -(-length // 2)
    words = np.zeros(2 * half, dtype=np.uint64)
    add_masks(words, [derived_key(secret, b"fedbb noise %d" % number)], [])
    # Within (0, 1]: the largest number is √(2·65·ln 2) = 9.5 deviations.
    radius = np.sqrt(-2 * np.log(np.ldexp(words[:half].astype(np.float64) + 0.5, -64)))
    angle = np.ldexp(words[half:].astype(np.float64), -63) * np.pi
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:length] * deviation
