"""The loop a user writes in an afternoon: federated averaging in bare eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.work import BATCH, CLASSES, DECAY, MOMENTUM, RATE, SIZE, Work
from fedbb.models.registry import build_model


def bare_rounds(work: Work, data: Path, threads: int) -> Iterator[dict[str, Any]]:
    """Yield each round's steps and loss; all tensors are ready, nothing is checked or saved."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    archive = np.load(data)
    images = (torch.from_numpy(archive["images"]).float() / 255 - 0.5) / 0.25
    labels = torch.from_numpy(archive["labels"])
    model = build_model(work.model, CLASSES, (3, SIZE, SIZE))
    state = copy.deepcopy(model.state_dict())
    while True:
        trained, losses = [], []
        for client in torch.arange(work.total).split(work.images):
            model.load_state_dict(state)
            losses += train(model, images[client], labels[client])
            trained.append(copy.deepcopy(model.state_dict()))
        state = {name: _mean([one[name] for one in trained]) for name in state}
        yield {"steps": len(losses), "loss": float(np.mean(losses))}


def train(model: nn.Module, images: Tensor, labels: Tensor) -> list[float]:
    """Train for an epoch and return the loss of each step."""
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    model.train()
    losses = []
    for batch in torch.randperm(len(labels)).split(BATCH):
        loss = F.cross_entropy(model(images[batch]).logits, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _mean(tensors: list[Tensor]) -> Tensor:
    return torch.stack(tensors).double().mean(0).to(tensors[0].dtype)
