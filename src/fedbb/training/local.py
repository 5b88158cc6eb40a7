"""The only local training loop: every method trains here."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor, nn

from fedbb.errors import DivergedError
from fedbb.methods import Method
from fedbb.models.base import run_network
from fedbb.penalties.base import Anchors, Step
from fedbb.records import ClientState, ClientUpdate, ModelState
from fedbb.rng import torch_stream
from fedbb.state import is_finite, restore, snapshot
from fedbb.training.client_dataset import ClientDataset, batches
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.sgd import SGD, effective_steps

NO_STATE = ClientState()


def train_client(
    model: nn.Module,
    client: ClientDataset,
    job: TrainJob,
    method: Method,
    local: LocalConfig,
    client_state: ClientState = NO_STATE,
) -> tuple[ClientUpdate, ClientState]:
    """Train on one client's data from the job's state.

    Args:
        model: the network to train in; its own weights are overwritten.
        client: the client's data.
        job: the round, the seed and the state to start from.
        method: its loss and penalties are applied here.
        local: the settings of local training.
        client_state: what the client kept from the last round it took part in.

    Returns:
        What goes to the server, and what the client keeps for its next round.

    Raises:
        DivergedError: the loss or the trained model is not finite.
    """
    began = time.perf_counter()
    restore(model, job.state)
    model.train()
    loss = method.loss.bind(client.counts, client.dataset.task).to(local.device)
    anchors = Anchors(model, job.state, client_state.model)
    needs = method.needs
    penalties = [penalty.bind(anchors) for penalty in method.penalties]
    optimizer = SGD(model, local, client_state.momentum)
    losses: list[float] = []
    with torch_stream(job.seed, "torch", job.round, job.client):
        for epoch in range(local.epochs):
            for images, targets in batches(client, job, local, epoch):
                images, targets = _place(images, local), targets.to(local.device)
                outputs = run_network(model, images, embed=needs.projection)
                objective = loss(outputs.logits, targets)
                step = Step(images, outputs, _finite(objective, method, job, len(losses)))
                for penalty in penalties:
                    objective = objective + penalty(step)
                losses.append(_finite(objective, method, job, len(losses)))
                optimizer.zero_grad()
                objective.backward()
                if needs.clip is not None:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), needs.clip)
                optimizer.step()
    state = _finite_snapshot(model, method, job)
    kept = ClientState(
        model=state if needs.client_state else None,
        momentum=optimizer.momentum() if local.keep_momentum else None,
    )
    effective = effective_steps(len(losses), local)
    mean, seconds = math.fsum(losses) / len(losses), time.perf_counter() - began
    return ClientUpdate(job.client, state, len(losses), effective, mean, seconds), kept


def _place(images: Tensor, local: LocalConfig) -> Tensor:
    if local.channels_last and images.ndim == 4 and images.is_floating_point():
        images = images.contiguous(memory_format=torch.channels_last)
    return images.to(local.device)


def _finite(objective: Tensor, method: Method, job: TrainJob, step: int) -> float:
    value = objective.item()
    if not math.isfinite(value):
        raise DivergedError(
            f"{_where(method, job)}: the loss is {value} at step {step + 1}; "
            "a lower local.lr or method mu may help"
        )
    return value


def _finite_snapshot(model: nn.Module, method: Method, job: TrainJob) -> ModelState:
    state = snapshot(model)
    if not is_finite(state):
        raise DivergedError(
            f"{_where(method, job)}: the trained model holds values that are not finite"
        )
    return state


def _where(method: Method, job: TrainJob) -> str:
    return f"round {job.round}, client {job.client}, method {method.name}"
