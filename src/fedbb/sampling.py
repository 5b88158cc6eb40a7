"""The sampling of a method: how clients are chosen, and which of its samples a client trains on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from fedbb.records import FloatArray, IntArray, ModelState, Task, Tensors, Visibility


@dataclass(frozen=True, eq=False)
class SampleView:
    """What a sampling sees of a client before it trains.

    Attributes:
        labels: labels of the client's samples.
        classes: the number of classes.
        kept: what the sampling kept from the last round the client took part in.
        broadcast: what the server sent beside the model.
    """

    labels: npt.NDArray[Any]
    classes: int
    kept: Tensors
    broadcast: Tensors


@dataclass(frozen=True, eq=False)
class TrainedView:
    """What a sampling sees of a client after it has trained.

    Attributes:
        model: the network with the trained weights, in evaluation mode.
        start: the model that the round started from.
        inputs: returns inputs and targets of samples by their positions, as the network takes them.
        rng: a random stream of this round and client.
    """

    model: nn.Module
    start: ModelState
    inputs: Callable[[IntArray], tuple[Tensor, Tensor]]
    rng: np.random.Generator


@dataclass(frozen=True)
class Sampling:
    """All clients are chosen alike, and each trains on all its samples; others derive from it.

    Attributes:
        by_size: whether a client is chosen with a probability in proportion to its size.
        keeps: whether clients keep something for it between rounds.
    """

    by_size: ClassVar[bool] = False
    keeps: ClassVar[bool] = False

    @property
    def linear_classifier(self) -> bool:
        """Whether it needs a network whose logits are those of a linear layer."""
        return False

    def supports(self, task: Task) -> bool:
        """Return whether the sampling is defined for this task."""
        return True

    def check(self, classes: int) -> None:
        """Refuse a number of classes that the settings do not suit; ValueError says why."""

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

    def chances(self, view: SampleView) -> FloatArray | None:
        """Return the probability of each sample in every draw of an epoch, (N,).

        An epoch then has `size` draws with replacement; None if an epoch is a permutation.
        """
        return None

    def keep(self, view: SampleView, trained: TrainedView) -> Tensors:
        """Return what the client keeps for the sampling of its next round."""
        return {}


ALL_SAMPLES = Sampling()

SAMPLING = "sampling."
"""Prefix of what a client keeps for the sampling, among the tensors of its state."""


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
