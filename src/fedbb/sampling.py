"""The sampling of a method: how clients are chosen, and which of its samples a client trains on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbb.records import IntArray, Visibility


@dataclass(frozen=True)
class Sampling:
    """All clients are chosen alike, and each trains on all its samples; others derive from it.

    Attributes:
        by_size: whether a client is chosen with a probability in proportion to its size.
    """

    by_size: ClassVar[bool] = False

    @property
    def visibility(self) -> Visibility:
        """What the server must see: sizes, if it chooses by them."""
        return Visibility.FIGURES if self.by_size else Visibility.SUMS

    def size(self, samples: int) -> int:
        """Return how many samples an epoch of a client with `samples` samples has."""
        return samples

    def draw(self, samples: int, rng: np.random.Generator) -> IntArray | None:
        """Return the positions of the samples of a round, at least one; None for all of them."""
        return None


ALL_SAMPLES = Sampling()


@dataclass(frozen=True)
class VirtualClients(Sampling):
    """FedVC (Hsu et al. 2020): every client trains on as many samples, drawn anew in each round.

    Clients are chosen with a probability in proportion to their size.

    Args:
        number: samples of a client in a round; drawn with replacement where it has fewer.

    Raises:
        ValueError: the number is below 1.
    """

    number: int = 256
    by_size: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(f"the samples of a virtual client are at least 1, not {self.number}")

    def size(self, samples: int) -> int:
        """Return the number, whatever the client has."""
        return self.number

    def draw(self, samples: int, rng: np.random.Generator) -> IntArray | None:
        """Return the positions of the samples of a round."""
        return rng.choice(samples, self.number, replace=samples < self.number)
