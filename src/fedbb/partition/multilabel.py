"""Images of several labels as images of one, so that the same rule can deal out both."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.records import IntArray
from fedbb.rng import stream


def deciding_classes(labels: npt.NDArray[Any], seed: int) -> IntArray:
    """Return for each row of labels (N, C) the class that decides on its client.

    It is one of the row's positive classes, each as likely as the others, or C where there is none.
    A client thus gets an image with the mean of the shares that it has of the image's classes.
    """
    positive = labels == 1
    keys = stream(seed, "partition", "deciding class").random(labels.shape)
    chosen = np.where(positive, keys, -1.0).argmax(axis=1)
    decided = np.where(positive.any(axis=1), chosen, labels.shape[1])
    return np.asarray(decided, dtype=np.int64)
