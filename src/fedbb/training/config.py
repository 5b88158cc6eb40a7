"""The settings of local training, and the job one client is given."""

from __future__ import annotations

from dataclasses import dataclass

from fedbb.data.dataset import Dataset
from fedbb.imbalance.counts import count_labels
from fedbb.records import IntArray, LabelCounts, ModelState


@dataclass(frozen=True)
class LocalConfig:
    """How a client trains; the optimizer is fresh in every round unless its momentum is kept.

    Threads, memory format and device are among the settings because results depend on them to the
    bit.
    """

    epochs: int = 1
    batch_size: int = 32
    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    drop_last: bool = False
    keep_momentum: bool = False
    augment: bool = True
    threads: int = 1
    channels_last: bool = True
    device: str = "cpu"


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
