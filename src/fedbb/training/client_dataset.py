"""One client's part of a data set, its label counts, and its batches in a reproducible order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedbb.data.dataset import Dataset
from fedbb.data.transforms import Augmentation, apply, draw, normalize
from fedbb.imbalance.counts import count_groups, count_labels
from fedbb.records import IntArray, LabelCounts
from fedbb.rng import stream
from fedbb.sampling import Sampling
from fedbb.training.config import LocalConfig, TrainJob


@dataclass(frozen=True, eq=False)
class ClientDataset:
    """One client's part of a data set, by row; the inputs are not copied.

    Args:
        dataset: the data of all clients.
        indices: the rows of this client.
        counted: its label counts where they are known; else they are counted when first needed.
    """

    dataset: Dataset
    indices: IntArray
    counted: LabelCounts | None = None

    def __len__(self) -> int:
        return len(self.indices)

    @cached_property
    def counts(self) -> LabelCounts:
        """The label counts of this part."""
        if self.counted is not None:
            return self.counted
        labels = self.dataset.train.labels[self.indices]
        return count_labels(labels, self.dataset.task, len(self.dataset.classes))


def make_client_datasets(dataset: Dataset, clients: Sequence[IntArray]) -> list[ClientDataset]:
    """Return the part of every client, given its rows; all labels are counted here, once."""
    counts = count_groups(dataset.train.labels, clients, dataset.task, len(dataset.classes))
    return [
        ClientDataset(dataset, indices, counted)
        for indices, counted in zip(clients, counts, strict=True)
    ]


def draw_samples(client: ClientDataset, job: TrainJob, sampling: Sampling) -> ClientDataset:
    """Return the samples that a client trains on in a round, which are all by default."""
    positions = sampling.draw(len(client), stream(job.seed, "draw", job.round, job.client))
    return client if positions is None else ClientDataset(client.dataset, client.indices[positions])


def batches(
    client: ClientDataset, job: TrainJob, local: LocalConfig, epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (inputs, targets) of one epoch, normalized and, if the settings say so, augmented."""
    dataset = client.dataset
    place = (job.round, job.client, epoch)
    order = stream(job.seed, "order", *place).permutation(len(client))
    draws = None
    if local.augment and dataset.augmentation != Augmentation():
        rng = stream(job.seed, "augment", *place)
        draws = draw(dataset.augmentation, len(client), rng)
    for positions in _cut(order, local):
        rows = client.indices[positions]
        inputs = torch.from_numpy(dataset.train.inputs[rows])
        targets = torch.from_numpy(dataset.train.labels[rows])
        if draws is not None:
            inputs = apply(inputs, draws.take(positions))
        yield normalize(inputs, dataset.mean, dataset.std), targets


def _cut(order: IntArray, local: LocalConfig) -> Iterator[IntArray]:
    """Cut an epoch's order into batches; a short last one is kept if it is the only one."""
    for start in range(0, len(order), local.batch_size):
        batch = order[start : start + local.batch_size]
        if local.drop_last and start > 0 and len(batch) < local.batch_size:
            return
        yield batch
