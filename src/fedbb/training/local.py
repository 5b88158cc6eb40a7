"""The only local training loop: every method trains here."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor, nn

from fedbb.errors import DivergedError
from fedbb.methods import Method
from fedbb.models.base import Outputs, run_network
from fedbb.penalties.base import Anchors, BoundPenalty, LocalResult, Step
from fedbb.records import ClientState, ClientUpdate, ModelState
from fedbb.rng import torch_stream
from fedbb.state import at_rest, is_finite, restore, select, snapshot
from fedbb.statistics.base import due
from fedbb.training.client_dataset import ClientDataset, batches, draw_samples
from fedbb.training.config import LocalConfig, TrainJob, check_optimizer
from fedbb.training.optimizer import LocalOptimizer, effective_steps
from fedbb.training.statistics import compute_statistics, place_inputs

Batch = tuple[Tensor, Tensor]
"""Images and targets."""

NO_STATE = ClientState()
NO_MODEL = ModelState({}, {})


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
        RecipeError: the method is not defined for the optimizer.
    """
    began = time.perf_counter()
    check_optimizer(method, local)
    restore(model, job.state)
    before, number = client_state.tensors, job.round
    starting = due(method.statistics, number, "start")
    found = compute_statistics(starting, model, client, job, local, (before, before))
    model.train()
    objective = _Objective(model, client, job, method, local, client_state)
    clip = _smaller(local.clip, method.needs.clip)
    lr = local.lr_in(number)
    optimizer = LocalOptimizer(model, local, lr, client_state.optimizer, objective.parameters())
    samples = draw_samples(client, job, method.sampling)
    losses: list[float] = []
    with torch_stream(job.seed, "torch", number, job.client):
        for epoch in range(local.epochs):
            for group in _groups(batches(samples, job, local, epoch), local.accumulate):
                optimizer.zero_grad()
                losses.append(objective.backward(group, len(losses)))
                if clip is not None:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
    state = _finite_snapshot(model, method, job)
    effective = effective_steps(len(losses), local)
    kept = ClientState(
        model=state if method.needs.client_state else None,
        optimizer=optimizer.state() if local.keep_optimizer else {},
        tensors=objective.kept(LocalResult(job.state, state, effective, lr)),
    )
    ending = due(method.statistics, number, "end")
    found |= compute_statistics(ending, model, client, job, local, (before, kept.tensors))
    mean, seconds = math.fsum(losses) / len(losses), time.perf_counter() - began
    return ClientUpdate(job.client, state, len(losses), effective, mean, seconds, found), kept


def measure_client(
    model: nn.Module, client: ClientDataset, job: TrainJob, method: Method, local: LocalConfig
) -> ClientUpdate:
    """Return the statistics of the job's state, which is a merged one, without any training."""
    began = time.perf_counter()
    restore(model, job.state)
    merged = due(method.statistics, job.round, "merged")
    found = compute_statistics(merged, model, client, job, local, ({}, {}))
    return ClientUpdate(job.client, NO_MODEL, 0, 0.0, 0.0, time.perf_counter() - began, found)


class _Objective:
    """The loss and the penalties of one client's round."""

    def __init__(
        self,
        model: nn.Module,
        client: ClientDataset,
        job: TrainJob,
        method: Method,
        local: LocalConfig,
        client_state: ClientState,
    ) -> None:
        self.model, self.job, self.method, self.local = model, job, method, local
        self.loss = method.loss.bind(client.counts, client.dataset.task).to(local.device)
        self.penalties: list[tuple[str, BoundPenalty]] = []
        for penalty in method.penalties:
            name = f"{penalty.needs.keeps}." if penalty.needs.keeps else ""
            anchors = Anchors(
                model,
                job.state,
                client_state.model,
                job.broadcast,
                select(client_state.tensors, name) if name else {},
                client.counts,
            )
            bound = penalty.bind(anchors)
            if not isinstance(bound, BoundPenalty):
                bound = BoundPenalty(bound)
            if bound.module is not None:
                assert name, "a penalty that owns parameters keeps them"
                bound.module.to(local.device).train()
            self.penalties.append((name, bound))

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that penalties own."""
        return {
            f"{name}{own}": parameter
            for name, bound in self.penalties
            if bound.module is not None
            for own, parameter in bound.module.named_parameters()
        }

    def kept(self, result: LocalResult) -> dict[str, Tensor]:
        """Return what the penalties keep for the client's next round."""
        return {
            f"{name}{own}": at_rest(tensor)
            for name, bound in self.penalties
            if name
            for own, tensor in bound.keep(result).items()
        }

    def backward(self, group: Sequence[Batch], step: int) -> float:
        """Add the gradients of the mean objective over a step's samples, and return that mean."""
        if len(group) == 1:
            objective, value = self._value(*group[0], step)
            objective.backward()
            return value
        samples = sum(len(targets) for _, targets in group)
        values = []
        for images, targets in group:
            objective, value = self._value(images, targets, step)
            (objective * (len(targets) / samples)).backward()
            values.append(value * (len(targets) / samples))
        return math.fsum(values)

    def _value(self, images: Tensor, targets: Tensor, step: int) -> tuple[Tensor, float]:
        images, targets = place_inputs(images, self.local), targets.to(self.local.device)
        outputs = self._outputs(images)
        objective = self.loss(outputs.logits, targets)
        done = Step(images, outputs, _finite(objective, self.method, self.job, step), targets)
        for _, penalty in self.penalties:
            objective = objective + penalty.value(done)
        return objective, _finite(objective, self.method, self.job, step)

    def _outputs(self, images: Tensor) -> Outputs:
        embed = self.method.needs.embedding
        if self.local.precision == "float32":
            return run_network(self.model, images, embed=embed)
        with torch.autocast(torch.device(self.local.device).type, dtype=torch.bfloat16):
            outputs = run_network(self.model, images, embed=embed)
        stages = tuple(stage.float() for stage in outputs.stages)
        embedding = None if outputs.embedding is None else outputs.embedding.float()
        return Outputs(outputs.logits.float(), embedding, stages)


def _groups(epoch: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """Yield the batches of each optimizer step; the last step of an epoch may have fewer."""
    while group := list(islice(epoch, size)):
        yield group


def _smaller(one: float | None, two: float | None) -> float | None:
    return min((bound for bound in (one, two) if bound is not None), default=None)


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
