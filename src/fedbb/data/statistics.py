"""Mean and standard deviation per channel from sums of the clients, without pooling their data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedbb.data.mapped import Inputs
from fedbb.data.transforms import chunks
from fedbb.errors import DataError
from fedbb.records import FloatArray, IntArray

FRACTION_BITS = 60
"""Fractional bits of a number in limbs: the sum over K clients is off by K·2^-61 at most."""

SHIFT = 2**126
"""Added to every number in limbs, so that it is above 0."""


@dataclass(frozen=True, eq=False)
class ChannelSums:
    """What one client reports of its inputs: 2 C + 1 numbers that can be added to those of others.

    Attributes:
        count: numbers of each channel.
        total: their sum per channel, (C,).
        squares: the sum of their squares per channel, (C,).
    """

    count: float
    total: FloatArray
    squares: FloatArray

    def as_vector(self) -> FloatArray:
        """Return all 2 C + 1 numbers as one vector, for a secure sum."""
        return np.concatenate([[self.count], self.total, self.squares])

    @classmethod
    def from_vector(cls, vector: FloatArray) -> ChannelSums:
        """Return the sums of a vector, such as the sum of several clients' vectors."""
        values = np.asarray(vector, dtype=np.float64)
        if values.ndim != 1 or len(values) < 3 or len(values) % 2 == 0:
            raise DataError(
                f"channel sums are 2 · channels + 1 numbers, not an array of shape {values.shape}"
            )
        channels = len(values) // 2
        return cls(float(values[0]), values[1 : channels + 1], values[channels + 1 :])

    def to_limbs(self) -> IntArray:
        """Return all numbers as integers of four 32-bit limbs, (2 C + 1, 4), lowest first.

        Numbers have 60 fractional bits and are shifted above 0, so that limbs can be added by a
        secure sum of integers, whatever the scale of the inputs.

        Raises:
            DataError: a number is not finite, or 2^66 or larger.
        """
        values = self.as_vector()
        if not np.all(np.abs(values) < 2.0**66):
            raise DataError("sums of inputs for data.normalize are not finite, or 2^66 or larger")
        whole = [round(math.ldexp(value, FRACTION_BITS)) + SHIFT for value in values.tolist()]
        limbs = [[number >> 32 * place & 0xFFFFFFFF for place in range(4)] for number in whole]
        return np.array(limbs, dtype=np.int64)

    @classmethod
    def from_limbs(cls, limbs: IntArray, clients: int) -> ChannelSums:
        """Return the sums over this number of clients, whose limbs were added."""
        whole = [
            sum(int(limb) << 32 * place for place, limb in enumerate(row)) - clients * SHIFT
            for row in limbs
        ]
        return cls.from_vector(np.array([number / 2**FRACTION_BITS for number in whole]))


def channel_sums(inputs: Inputs) -> ChannelSums:
    """Return the sums of one client's inputs, per channel (their second axis).

    Args:
        inputs: (N, C, …) of a numeric type; uint8 pixels are taken as 0 to 1, as a network sees
            them.

    >>> sums = channel_sums(np.array([[1.0, 2.0], [3.0, 6.0]], dtype=np.float32))
    >>> sums.count, sums.total.tolist(), sums.squares.tolist()
    (2.0, [4.0, 8.0], [10.0, 40.0])
    """
    axes = (0, *range(2, inputs.ndim))
    total, squares = np.zeros(inputs.shape[1]), np.zeros(inputs.shape[1])
    for chunk in chunks(inputs):
        total += chunk.sum(axis=axes)
        squares += (chunk * chunk).sum(axis=axes)
    return ChannelSums(inputs.size / inputs.shape[1], total, squares)


def federated_statistics(
    clients: Iterable[ChannelSums],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and population standard deviation per channel over all clients.

    They are those of the pooled data, up to the rounding of a difference of squares: about eight
    digits remain of a deviation that is a ten-thousandth of the mean. A channel that never changes
    gets the deviation 1.

    >>> first = channel_sums(np.array([[1.0], [3.0]], dtype=np.float32))
    >>> second = channel_sums(np.array([[5.0], [7.0]], dtype=np.float32))
    >>> federated_statistics([first, second])
    ((4.0,), (2.23606797749979,))

    Args:
        clients: the sums of each client, or one sum of all of them.

    Raises:
        DataError: there are no clients, or they differ in the number of channels.
    """
    vectors = [client.as_vector() for client in clients]
    if not vectors or len({len(vector) for vector in vectors}) > 1:
        raise DataError("federated statistics need clients, all with the same number of channels")
    whole = ChannelSums.from_vector(np.sum(vectors, axis=0))
    if not whole.count > 0:
        raise DataError("federated statistics need clients that have samples")
    mean = whole.total / whole.count
    variance = np.maximum(whole.squares / whole.count - mean * mean, 0.0)
    # Where both terms are equal but for rounding, the difference is noise.
    constant = variance <= 1e-14 * np.maximum(mean * mean, 1e-10)
    std = np.where(constant, 1.0, np.sqrt(variance))
    return tuple(mean.tolist()), tuple(std.tolist())
