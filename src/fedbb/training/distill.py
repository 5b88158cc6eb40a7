"""Training on public inputs towards a table of outputs: at a client, or at the server."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedbb.data.dataset import Dataset
from fedbb.data.transforms import normalize
from fedbb.distillation import Distillation
from fedbb.errors import DivergedError
from fedbb.models.base import run_network
from fedbb.records import IntArray, ModelState
from fedbb.rng import stream, torch_stream
from fedbb.state import restore, snapshot
from fedbb.training.config import LocalConfig
from fedbb.training.loop import LocalOptimizer, place


def learn(
    model: nn.Module,
    dataset: Dataset,
    target: Tensor,
    spec: Distillation,
    local: LocalConfig,
    seed: int,
    *name: str | int,
) -> int:
    """Train a network, in place, towards a table; return how many steps moved it.

    A step whose loss is negligible is skipped.

    Args:
        model: the network.
        dataset: the public inputs with mean and standard deviation, and the task.
        target: the table, (P, C).
        spec: how it is trained.
        local: the device and the memory format.
        seed: the seed of the run.
        name: what distinguishes this training from others, such as round and client.

    Raises:
        DivergedError: the loss is not finite.
    """
    assert dataset.public is not None
    public, steps, moved = dataset.public, spec.steps_over(len(dataset.public)), 0
    model.train(spec.mode == "train")
    optimizer = LocalOptimizer(model, LocalConfig(optimizer="adam"), spec.lr)
    with torch_stream(seed, "torch", "distillation", *name):
        for step, rows in enumerate(_rows(len(public), steps, spec, seed, *name)):
            inputs = normalize(torch.tensor(public[rows]), dataset.mean, dataset.std)
            wanted = target[torch.from_numpy(rows)].to(local.device)
            logits = run_network(model, place(inputs, local)).logits.float()
            loss = spec.loss(logits, wanted, dataset.task)
            value = loss.item()
            if not math.isfinite(value):
                raise DivergedError(
                    f"distillation {'/'.join(map(str, name))}: the loss is {value} at step "
                    f"{step + 1}; a lower learning rate of the method may help"
                )
            if value < spec.negligible(wanted):
                continue
            optimizer.zero_grad()
            loss.backward()
            if spec.clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), spec.clip)
            optimizer.lr = spec.lr_at(step, steps)
            optimizer.step()
            moved += 1
    optimizer.zero_grad()
    return moved


def _rows(
    public: int, steps: int, spec: Distillation, seed: int, *name: str | int
) -> Iterator[IntArray]:
    """Yield the rows of each step: epoch after epoch, each in an order of its own."""
    epoch = step = 0
    while step < steps:
        order = stream(seed, "distillation", *name, epoch).permutation(public)
        for start in range(0, public, spec.batch_size):
            rows = order[start : start + spec.batch_size]
            if step == steps or (spec.mode == "train" and start and len(rows) < spec.batch_size):
                break
            yield rows
            step += 1
        epoch += 1


@dataclass(frozen=True, eq=False)
class ServerDistiller:
    """Trains the server's model towards a table.

    Args:
        model: a network that states are restored into.
        dataset: the public inputs.
        spec: how the model is trained.
        local: the device and the memory format.
        seed: the seed of the run.
    """

    model: nn.Module
    dataset: Dataset
    spec: Distillation
    local: LocalConfig
    seed: int

    def __call__(self, number: int, state: ModelState, target: Tensor) -> ModelState:
        """Return the model of a round after its distillation; itself if no step moved it."""
        self.model.to(self.local.device)
        restore(self.model, state)
        moved = learn(
            self.model, self.dataset, target, self.spec, self.local, self.seed, "server", number
        )
        return snapshot(self.model) if moved else state
