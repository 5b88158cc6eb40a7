"""Mean and spread of pixels, per channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.records import FloatArray

_CHUNK = 512


def channel_statistics(images: npt.NDArray[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and population standard deviation per channel (the second axis of images).

    uint8 pixels are taken as 0 to 1. A channel that never changes gets the spread 1, so that
    dividing by it leaves the channel finite.
    """
    pixels = images.size / images.shape[1]
    mean = sum((chunk.sum(axis=(0, 2, 3)) for chunk in _chunks(images)), np.zeros(1)) / pixels
    centered = ((chunk - mean[:, None, None]) ** 2 for chunk in _chunks(images))
    std = np.sqrt(sum((chunk.sum(axis=(0, 2, 3)) for chunk in centered), np.zeros(1)) / pixels)
    std[std < 1e-12] = 1.0
    return tuple(mean.tolist()), tuple(std.tolist())


def _chunks(images: npt.NDArray[Any]) -> Iterator[FloatArray]:
    """Yield float64 pieces, so that a large set is never held in float64 as a whole."""
    scale = 255.0 if images.dtype == np.uint8 else 1.0
    for start in range(0, len(images), _CHUNK):
        yield images[start : start + _CHUNK].astype(np.float64) / scale
