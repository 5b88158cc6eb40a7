"""The only local training loop: every method trains here."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fedbb.errors import DivergedError
from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.penalties.base import Step
from fedbb.records import ClientUpdate
from fedbb.rng import torch_stream
from fedbb.state import is_finite, restore, snapshot
from fedbb.training.batches import batches
from fedbb.training.plan import Job, LocalPlan, Share


def train_client(
    model: NetworkModule, share: Share, job: Job, method: Method, plan: LocalPlan
) -> ClientUpdate:
    """Train on one client's share from the job's state; `model` is only the workbench."""
    restore(model, job.state)
    model.train()
    loss = method.loss.bind(share.count(), share.dataset.task).to(plan.device)
    anchor = {name: tensor.to(plan.device) for name, tensor in job.state.params.items()}
    optimizer = _optimizer(model, plan)
    losses: list[float] = []
    with torch_stream(job.seed, "torch", job.round, job.client):
        for epoch in range(plan.epochs):
            for images, targets in batches(share, job, plan, epoch):
                outputs = model(_place(images, plan))
                objective = loss(outputs.logits, targets.to(plan.device))
                for penalty in method.penalties:
                    objective = objective + penalty(Step(model, outputs, anchor))
                losses.append(_finite(objective, method, job, len(losses)))
                optimizer.zero_grad()
                objective.backward()
                optimizer.step()
    state = snapshot(model)
    if not is_finite(state):
        raise DivergedError(
            f"{_where(method, job)}: the trained model holds values that are not finite"
        )
    return ClientUpdate(job.client, state, len(losses), math.fsum(losses) / len(losses))


def _optimizer(model: nn.Module, plan: LocalPlan) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        model.parameters(),
        lr=plan.lr,
        momentum=plan.momentum,
        nesterov=plan.nesterov,
        weight_decay=plan.weight_decay,
    )


def _place(images: Tensor, plan: LocalPlan) -> Tensor:
    if plan.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    return images.to(plan.device)


def _finite(objective: Tensor, method: Method, job: Job, step: int) -> float:
    value = objective.item()
    if not math.isfinite(value):
        raise DivergedError(
            f"{_where(method, job)}: the loss is {value} at step {step + 1}; "
            "a lower local.lr or method mu may help"
        )
    return value


def _where(method: Method, job: Job) -> str:
    return f"round {job.round}, client {job.client}, method {method.name}"
