"""The settings of local training, and the job one client is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Lt

from fedbb._util.constraints import STRICT_TABLE, Count, NotNegative, Positive
from fedbb.data.dataset import Dataset
from fedbb.imbalance.counts import count_labels
from fedbb.records import IntArray, LabelCounts, ModelState


@dataclass(frozen=True)
class LocalConfig:
    """How a client trains: the section `local` of a recipe.

    Threads, memory format and device are among the settings because results depend on them to the
    bit.

    Attributes:
        epochs: Passes over the client's data in a round.
        batch_size: Examples in a step.
        lr: Learning rate of SGD, constant over all rounds.
        momentum: Momentum of SGD, from 0 up to but excluding 1.
        nesterov: Whether the momentum is Nesterov's, which needs a momentum above 0.
        weight_decay: Factor of the L2 penalty.
        drop_last: Whether a last batch that is not full is left out.
        augment: Whether training images are augmented.
        threads: Threads that torch computes with.
        channels_last: Whether images and network have the memory format channels-last.
        device: A device of torch, such as "cpu" or "cuda:0".

    Raises:
        ValueError: Nesterov's momentum is 0.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    epochs: Count = 1
    batch_size: Count = 32
    lr: Positive = 0.01
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 1e-4
    drop_last: bool = False
    augment: bool = True
    threads: Count = 1
    channels_last: bool = True
    device: str = "cpu"

    keep_momentum: ClassVar[bool] = False
    """Whether the optimizer's momentum is kept between rounds; else it is fresh in every round."""

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")


@dataclass(frozen=True)
class CentralConfig(LocalConfig):
    """How central training goes: a round continues the last one, so the momentum is kept."""

    keep_momentum: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class ClientDataset:
    """One client's part of a data set, by place; the images are not copied."""

    dataset: Dataset
    indices: IntArray

    def __len__(self) -> int:
        return len(self.indices)

    def count(self) -> LabelCounts:
        """Return the label counts of this part."""
        labels = self.dataset.train.labels[self.indices]
        return count_labels(labels, self.dataset.task, len(self.dataset.classes))


@dataclass(frozen=True)
class TrainJob:
    """One client's work in one round: start here, draw from the streams of this seed."""

    client: int
    round: int
    seed: int
    state: ModelState
