"""The record every loader returns: training and test examples with what is needed to read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.records import IntArray, Task


@dataclass(frozen=True, eq=False)
class Examples:
    """Images (N, channels, height, width), uint8 or float32, with their labels.

    Multi-class labels are (N,) int64. Multi-label ones are (N, C) float32 of 0, 1 and NaN, where
    NaN is a label nobody knows. `columns` holds further facts of each image, such as its site.
    """

    images: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    columns: Mapping[str, npt.NDArray[np.str_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: IntArray) -> Examples:
        """Return the examples at these places, in this order."""
        columns = {name: values[indices] for name, values in self.columns.items()}
        return Examples(self.images[indices], self.labels[indices], columns)


@dataclass(frozen=True)
class Augmentation:
    """Random changes to a training image: crop after padding by so many pixels, mirror by half."""

    crop: int = 0
    flip: bool = False

    @property
    def active(self) -> bool:
        """Whether there is any change to make."""
        return self.crop > 0 or self.flip


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set ready to be divided among clients.

    `mean` and `std` are per channel, of images in [0, 1]. `notes` says what the loader left out or
    decided, for the log of a run.
    """

    name: str
    task: Task
    classes: tuple[str, ...]
    train: Examples
    test: Examples
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation = Augmentation()
    notes: tuple[str, ...] = ()

    @property
    def channels(self) -> int:
        """Number of image channels."""
        return int(self.train.images.shape[1])
