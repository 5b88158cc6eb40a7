"""The only training loop: the optimizer, the objective of loss and penalties, and the steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

# torch's own rules without its Optimizer, whose first use imports the compiler: two seconds and
# seventy megabytes in every process.
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedbb.errors import DivergedError
from fedbb.methods import Method
from fedbb.models.base import Outputs, run_network
from fedbb.penalties.base import Anchors, BoundPenalty, LocalResult, Penalty, Step
from fedbb.personal import Stage
from fedbb.records import ClientState, LabelCounts, ModelState, OptimizerState, Task
from fedbb.rng import torch_stream
from fedbb.state import at_rest, is_finite, select, snapshot
from fedbb.training.config import LocalConfig, TrainJob

Batch = tuple[Tensor, Tensor, Tensor | None]
"""Inputs, targets, and a teacher's logits if the data has them."""

Batches = Callable[[int], Iterator[Batch]]
"""Returns the batches of an epoch, given its number in the round."""

MOMENTUM = "momentum"
ADAM = ("exp_avg", "exp_avg_sq", "step")
"""What an optimizer remembers of a parameter, by torch's names."""

SUMMED_STEPS = 1_000_000
"""Up to as many steps are summed one by one, which fixes the bits of models; a tenth of a second.
Larger numbers, which an untrusted client may declare, take the closed form."""


class LocalOptimizer:
    """SGD, Adam or AdamW by the settings of local training.

    Args:
        model: its parameters are moved.
        local: the optimizer and its settings.
        lr: the learning rate of the round.
        state: what an earlier optimizer remembered; empty to begin anew.
        further: further parameters that are moved, by name; those of penalties.
    """

    def __init__(
        self,
        model: nn.Module,
        local: LocalConfig,
        lr: float,
        state: OptimizerState | None = None,
        further: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        self.local, self.lr = local, lr
        self.parameters = {**dict(model.named_parameters()), **(further or {})}
        names = (MOMENTUM,) if local.optimizer == "sgd" else ADAM
        self._slots: dict[str, dict[str, Tensor]] = {name: {} for name in names}
        for name, slot in self._slots.items():
            for parameter, tensor in (state or {}).get(name, {}).items():
                slot[parameter] = self._place(name, parameter, tensor)

    def zero_grad(self) -> None:
        """Drop the gradients of the step before."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = {name: p for name, p in self.parameters.items() if p.grad is not None}
        gradients = [parameter.grad for parameter in moved.values() if parameter.grad is not None]
        if self.local.optimizer == "sgd":
            self._sgd(moved, gradients)
        else:
            self._adam(moved, gradients)

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Return a copy of what is remembered, for the parameters that were ever moved."""
        return {
            name: {parameter: at_rest(tensor) for parameter, tensor in slot.items()}
            for name, slot in self._slots.items()
            if slot
        }

    def _sgd(self, moved: Mapping[str, Tensor], gradients: list[Tensor]) -> None:
        slot = self._slots[MOMENTUM]
        buffers = [slot.get(name) for name in moved]
        sgd(
            list(moved.values()),
            gradients,
            buffers,
            foreach=False,
            fused=False,
            weight_decay=self.local.weight_decay,
            momentum=self.local.momentum,
            lr=self.lr,
            dampening=0.0,
            nesterov=self.local.nesterov,
            maximize=False,
        )
        kept = zip(moved, buffers, strict=True)
        slot.update({name: buffer for name, buffer in kept if buffer is not None})

    def _adam(self, moved: Mapping[str, Tensor], gradients: list[Tensor]) -> None:
        for name, parameter in moved.items():
            if name not in self._slots["step"]:
                self._slots["step"][name] = torch.tensor(0.0, dtype=torch.float32)
                for slot in ("exp_avg", "exp_avg_sq"):
                    self._slots[slot][name] = torch.zeros_like(parameter)
        means, squares, steps = ([self._slots[slot][name] for name in moved] for slot in ADAM)
        first, second = self.local.betas
        adam(
            list(moved.values()),
            gradients,
            means,
            squares,
            [],
            steps,
            foreach=False,
            fused=False,
            decoupled_weight_decay=self.local.optimizer == "adamw",
            amsgrad=False,
            beta1=first,
            beta2=second,
            lr=self.lr,
            weight_decay=self.local.weight_decay,
            eps=self.local.eps,
            maximize=False,
        )

    def _place(self, slot: str, name: str, tensor: Tensor) -> Tensor:
        if slot == "step":  # torch counts on the CPU
            return tensor.clone()
        # In the parameter's own memory format, as the step would have made it.
        return torch.empty_like(self.parameters[name]).copy_(tensor)


def effective_steps(steps: int, local: LocalConfig) -> float:
    """Return how many plain gradient steps `steps` steps amount to (‖a‖₁ of FedNova).

    With momentum ρ a gradient goes on to act in later steps: after c ← ρ·c + 1 a step adds c, or
    1 + ρ·c with Nesterov's. One per step without momentum, and by convention under Adam, for which
    no such number is defined.

    >>> round(effective_steps(2, LocalConfig(momentum=0.9)), 6)
    2.9
    """
    if local.optimizer != "sgd":
        return float(steps)
    if local.momentum == 0:
        return float(steps)
    if steps <= SUMMED_STEPS:
        carried, total = 0.0, 0.0
        for _ in range(steps):
            carried = local.momentum * carried + 1.0
            total += 1.0 + local.momentum * carried if local.nesterov else carried
        return total
    # c is (1 - ρ^t) / (1 - ρ) at step t, and ρ^t adds up to ρ (1 - ρ^steps) / (1 - ρ).
    rho = local.momentum
    powers = rho * -math.expm1(steps * math.log(rho)) / (1.0 - rho)
    # No step carries less than 1, which cancellation at ρ near 1 must not hide.
    carried_sum = max(float(steps), (steps - powers) / (1.0 - rho))
    return steps + rho * carried_sum if local.nesterov else carried_sum


def place(inputs: Tensor, local: LocalConfig) -> Tensor:
    """Return a batch on the device and in the memory format of local training."""
    if local.channels_last and inputs.ndim == 4 and inputs.is_floating_point():
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return inputs.to(local.device)


@dataclass(frozen=True, eq=False)
class Work:
    """What is trained in a client's round, and how.

    Args:
        model: the network.
        job: the round, the seed, and the state that penalties refer to.
        method: its loss and penalties are applied.
        local: the settings of local training.
        counts: the client's label counts, which the loss is bound to.
        task: the kind of labels.
    """

    model: nn.Module
    job: TrainJob
    method: Method
    local: LocalConfig
    counts: LabelCounts
    task: Task

    @property
    def where(self) -> str:
        """The round, the client and the method, for messages."""
        return f"round {self.job.round}, client {self.job.client}, method {self.method.name}"

    def finite_snapshot(self) -> ModelState:
        """Return the trained model; DivergedError if it is not finite."""
        state = snapshot(self.model)
        if not is_finite(state):
            raise DivergedError(f"{self.where}: the trained model holds values that are not finite")
        return state


class Training:
    """The training of a network in one client's round: the only training loop.

    Args:
        work: the network, with the weights to start from, and how it is trained; the network is
            put into training mode.
        client_state: what the client kept from the last round it took part in.
        names: tell the random numbers of this training from those of others in the round.
    """

    def __init__(self, work: Work, client_state: ClientState, *names: str) -> None:
        self.work, self.names = work, names
        work.model.train()
        self._objective = _Objective(work, client_state)
        self.clip = _smaller(work.local.clip, work.method.needs.clip)
        self.lr = work.local.lr_in(work.job.round)
        further = self._objective.parameters()
        optimizer = client_state.optimizer
        self.optimizer = LocalOptimizer(work.model, work.local, self.lr, optimizer, further)
        self.kept = self._objective.kept

    def run(self, batches: Batches, stages: Sequence[Stage]) -> list[float]:
        """Train stage by stage on these batches; return the objective of every step."""
        losses: list[float] = []
        epoch, job = 0, self.work.job
        with torch_stream(job.seed, "torch", *self.names, job.round, job.client):
            for stage in stages:
                with _frozen(self.work.model, stage.frozen):
                    for number in range(epoch, epoch + stage.epochs):
                        self._run_epoch(batches(number), losses)
                epoch += stage.epochs
        return losses

    def _run_epoch(self, epoch: Iterator[Batch], losses: list[float]) -> None:
        for group in _groups(epoch, self.work.local.accumulate):
            self.optimizer.zero_grad()
            losses.append(self._objective.backward(group, len(losses)))
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.work.model.parameters(), self.clip)
            self.optimizer.step()


@contextmanager
def _frozen(model: nn.Module, names: frozenset[str]) -> Iterator[None]:
    """Let these parameters stay as they are in the block."""
    stopped = [p for name, p in model.named_parameters() if name in names and p.requires_grad]
    for parameter in stopped:
        parameter.requires_grad_(False)
        parameter.grad = None
    try:
        yield
    finally:
        for parameter in stopped:
            parameter.requires_grad_(True)


def _groups(epoch: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """Yield the batches of each optimizer step; the last step of an epoch may have fewer."""
    while group := list(islice(epoch, size)):
        yield group


def _smaller(one: float | None, two: float | None) -> float | None:
    return min((bound for bound in (one, two) if bound is not None), default=None)


class _Objective:
    """The loss and the penalties of one client's round."""

    def __init__(self, work: Work, client_state: ClientState) -> None:
        self.work = work
        loss = work.method.loss
        if hasattr(loss, "receive"):
            loss = loss.receive(work.job.broadcast)
        self.loss = loss.bind(work.counts, work.task).to(work.local.device)
        self.penalties = [_bind(penalty, work, client_state) for penalty in work.method.penalties]

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
        samples = sum(len(targets) for _, targets, _ in group)
        values = []
        for batch in group:
            objective, value = self._value(*batch, step)
            share = len(batch[1]) / samples
            (objective * share).backward()
            values.append(value * share)
        return math.fsum(values)

    def _value(
        self, images: Tensor, targets: Tensor, teacher: Tensor | None, step: int
    ) -> tuple[Tensor, float]:
        local = self.work.local
        images, targets = place(images, local), targets.to(local.device)
        outputs = self._outputs(images)
        objective = self.loss(outputs.logits, targets)
        loss = _finite(objective, self.work, step)
        done = Step(images, outputs, loss, targets, teacher)
        for _, penalty in self.penalties:
            objective = objective + penalty.value(done)
        return objective, _finite(objective, self.work, step)

    def _outputs(self, images: Tensor) -> Outputs:
        model, local, embed = self.work.model, self.work.local, self.work.method.needs.embedding
        if local.precision == "float32":
            return run_network(model, images, embed=embed)
        with torch.autocast(torch.device(local.device).type, dtype=torch.bfloat16):
            outputs = run_network(model, images, embed=embed)
        stages = tuple(stage.float() for stage in outputs.stages)
        embedding = None if outputs.embedding is None else outputs.embedding.float()
        return Outputs(outputs.logits.float(), embedding, stages)


def _bind(penalty: Penalty, work: Work, client_state: ClientState) -> tuple[str, BoundPenalty]:
    """Return a penalty of this client and round, and what the names of its kept tensors begin with.

    The name is empty if it keeps nothing.
    """
    name = f"{penalty.needs.keeps}." if penalty.needs.keeps else ""
    anchors = Anchors(
        work.model,
        work.job.state,
        client_state.model,
        work.job.broadcast,
        select(client_state.tensors, name) if name else {},
        work.counts,
    )
    bound = penalty.bind(anchors)
    if not isinstance(bound, BoundPenalty):
        bound = BoundPenalty(bound)
    if bound.module is not None:
        assert name, "a penalty that owns parameters keeps them"
        bound.module.to(work.local.device).train()
    return name, bound


def _finite(objective: Tensor, work: Work, step: int) -> float:
    value = objective.item()
    if not math.isfinite(value):
        raise DivergedError(
            f"{work.where}: the loss is {value} at step {step + 1}; "
            "a lower local.lr or method mu may help"
        )
    return value
