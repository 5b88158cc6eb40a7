"""One epoch of a client's training batches, in an order and with changes set by named streams."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedbb.data.transforms import apply, draw, normalize
from fedbb.records import IntArray
from fedbb.rng import stream
from fedbb.training.config import ClientDataset, LocalConfig, TrainJob


def batches(
    share: ClientDataset, job: TrainJob, plan: LocalConfig, epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images, targets) of one epoch, normalized and, if the plan says so, augmented."""
    dataset = share.dataset
    place = (job.round, job.client, epoch)
    order = stream(job.seed, "order", *place).permutation(len(share))
    draws = None
    if plan.augment and dataset.augmentation.active:
        rng = stream(job.seed, "augment", *place)
        draws = draw(dataset.augmentation, len(share), rng)
    for positions in _cut(order, plan):
        rows = share.indices[positions]
        images = torch.from_numpy(dataset.train.images[rows])
        targets = torch.from_numpy(dataset.train.labels[rows])
        if draws is not None:
            images = apply(images, draws.take(positions))
        yield normalize(images, dataset.mean, dataset.std), targets


def _cut(order: IntArray, plan: LocalConfig) -> Iterator[IntArray]:
    """Cut an epoch's order into batches; a short last one is kept if it is the only one."""
    for start in range(0, len(order), plan.batch_size):
        batch = order[start : start + plan.batch_size]
        if plan.drop_last and start > 0 and len(batch) < plan.batch_size:
            return
        yield batch
