"""Local training on one client: its data, its batches, and the only training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import torch
from torch import Tensor, nn

from fedbb._util.collection import pause_collection
from fedbb.compression import COMPRESSION, Compressed
from fedbb.data.dataset import Dataset
from fedbb.data.transforms import Augmentation, apply, draw, normalize
from fedbb.distillation import DISTILLATION
from fedbb.errors import DivergedError
from fedbb.imbalance import count_groups, count_labels
from fedbb.methods import Method
from fedbb.methods.record import PLAIN_LOSS
from fedbb.models.base import Outputs, classifier_name, run_network
from fedbb.penalties.base import Anchors, BoundPenalty, LocalResult, Step
from fedbb.penalties.proximal import Proximal
from fedbb.personal import PERSONAL, Stage
from fedbb.records import (
    ClientState,
    ClientUpdate,
    FloatArray,
    IntArray,
    LabelCounts,
    ModelFacts,
    ModelState,
    Tensors,
)
from fedbb.rng import stream, torch_stream
from fedbb.sampling import SAMPLING, SampleView, Sampling, TrainedView
from fedbb.state import (
    add_prefix,
    at_rest,
    find_difference,
    is_finite,
    replace_entries,
    restore,
    select,
    snapshot,
)
from fedbb.statistics.base import ClientView, Statistic, due, statistic_shapes
from fedbb.training.config import LocalConfig, TrainJob, check_optimizer
from fedbb.training.distill import learn, place, public_batches
from fedbb.training.optimizer import LocalOptimizer, effective_steps

Batch = tuple[Tensor, Tensor, Tensor | None]
"""Inputs, targets, and a teacher's logits if the data has them."""

NO_STATE = ClientState()
NO_MODEL = ModelState({}, {})

STATISTICS_BATCH = 256
"""Samples in a forward pass of statistics. It is fixed, since the bits of a sum depend on it."""


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

    @property
    def counts(self) -> LabelCounts:
        """The label counts of this part."""
        return self._own_counts if self.counted is None else self.counted

    @cached_property
    def _own_counts(self) -> LabelCounts:
        labels = self.dataset.train.labels[self.indices]
        return count_labels(labels, self.dataset.task, len(self.dataset.classes))


def make_client_datasets(dataset: Dataset, clients: Sequence[IntArray]) -> list[ClientDataset]:
    """Return the part of every client, given its rows; all labels are counted here, once."""
    counts = count_groups(dataset.train.labels, clients, dataset.task, len(dataset.classes))
    with pause_collection():
        return [
            ClientDataset(dataset, indices, counted)
            for indices, counted in zip(clients, counts, strict=True)
        ]


Samples = Callable[[int], ClientDataset]
"""Returns the samples of an epoch, given its number in the round."""


def draw_samples(
    client: ClientDataset, job: TrainJob, sampling: Sampling, view: SampleView
) -> Samples:
    """Return the samples that a client trains on in a round, which are all by default."""
    chances = sampling.chances(view)
    if chances is not None:
        return lambda epoch: _draw_epoch(client, job, sampling.size(len(client)), chances, epoch)
    positions = sampling.draw(len(client), stream(job.seed, "draw", job.round, job.client))
    drawn = client
    if positions is not None:
        drawn = ClientDataset(client.dataset, client.indices[positions])
    return lambda epoch: drawn


def _draw_epoch(
    client: ClientDataset, job: TrainJob, size: int, chances: FloatArray, epoch: int
) -> ClientDataset:
    rng = stream(job.seed, "draw", job.round, job.client, epoch)
    positions = rng.choice(len(client), size, p=chances)
    return ClientDataset(client.dataset, client.indices[positions])


def _sample_view(client: ClientDataset, job: TrainJob, kept: Tensors) -> SampleView:
    labels, classes = client.dataset.train.labels[client.indices], len(client.dataset.classes)
    return SampleView(labels, classes, select(kept, SAMPLING), job.broadcast)


def _keep_sampling(
    model: nn.Module,
    client: ClientDataset,
    job: TrainJob,
    method: Method,
    local: LocalConfig,
    view: SampleView,
) -> dict[str, Tensor]:
    """Return what a client keeps for the sampling of its next round, after it has trained."""
    if not method.sampling.keeps:
        return {}

    def inputs(positions: IntArray) -> tuple[Tensor, Tensor]:
        return _take(client, client.indices[positions], local)

    rng = stream(job.seed, "probe", job.round, job.client)
    trained = TrainedView(model.eval(), job.state, inputs, rng)
    return add_prefix(SAMPLING, method.sampling.keep(view, trained))


def batches(
    client: ClientDataset, job: TrainJob, local: LocalConfig, epoch: int
) -> Iterator[Batch]:
    """Yield the batches of one epoch, normalized and, if the settings say so, augmented."""
    dataset, logits = client.dataset, client.dataset.train.teacher
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
        teacher = None if logits is None else torch.from_numpy(logits[rows])
        yield normalize(inputs, dataset.mean, dataset.std), targets, teacher


def _cut(order: IntArray, local: LocalConfig) -> Iterator[IntArray]:
    """Cut an epoch's order into batches; a short last one is kept if it is the only one."""
    for start in range(0, len(order), local.batch_size):
        batch = order[start : start + local.batch_size]
        if local.drop_last and start > 0 and len(batch) < local.batch_size:
            return
        yield batch


def train_client(
    model: nn.Module,
    client: ClientDataset,
    job: TrainJob,
    method: Method,
    local: LocalConfig,
    client_state: ClientState = NO_STATE,
    first: ModelState | None = None,
) -> tuple[ClientUpdate, ClientState]:
    """Train on one client's data from the job's state.

    Args:
        model: the network to train in; its own weights are overwritten.
        client: the client's data.
        job: the round, the seed and the state to start from.
        method: its loss and penalties are applied here.
        local: the settings of local training.
        client_state: what the client kept from the last round it took part in.
        first: the model that the run began with, with which a client's own model begins; None for
            the job's state.

    Returns:
        What goes to the server, and what the client keeps for its next round.

    Raises:
        DivergedError: the loss or the trained model is not finite.
        RecipeError: the method is not defined for the optimizer.
    """
    began = time.perf_counter()
    check_optimizer(method, local)
    personal, before, number = method.personal, client_state.tensors, job.round
    received, mine = job.state, select(before, PERSONAL)
    if personal is not None and personal.second is None:
        job = replace(job, state=replace_entries(received, mine))
    restore(model, job.state)
    starting = due(method.statistics, number, "start")
    found = _compute_statistics(starting, model, client, job, local, (before, before))
    _distill(model, client, job, method, local, before)
    view = _sample_view(client, job, before)
    samples = draw_samples(client, job, method.sampling, view)
    training = _Training(model, client, job, method, local, client_state)
    plain = (Stage(local.epochs),)
    stages = plain if personal is None else personal.stages(model, local.epochs)
    with torch_stream(job.seed, "torch", number, job.client):
        losses = training.run(samples, stages)
    state = _finite_snapshot(model, method, job)
    effective = effective_steps(len(losses), local)
    tensors = training.kept(LocalResult(job.state, state, effective, training.lr))
    sent, own = _keep_entries(method, model, received, state)
    tensors |= own
    ending = due(method.statistics, number, "end")
    found |= _compute_statistics(ending, model, client, job, local, (before, tensors))
    if method.distillation is not None:
        tensors |= add_prefix(DISTILLATION, method.distillation.keep(found))
    tensors |= _keep_sampling(model, client, job, method, local, view)
    if personal is not None and personal.second is not None:
        restore(model, received)
        with torch.no_grad():
            noted = personal.received(model.eval(), _rows(client, local))
        tensors |= add_prefix(PERSONAL, {name: at_rest(t) for name, t in noted.items()})
        restore(model, personal.model(received, first or received, mine))
        own_model = _train_own(model, client, samples, job, method, local)
        tensors |= add_prefix(PERSONAL, {**own_model.params, **own_model.buffers})
    leaving = _compress(method, received, sent, before, job)
    tensors |= add_prefix(f"{COMPRESSION}.", leaving.kept)
    kept = ClientState(
        model=state if method.needs.client_state else None,
        optimizer=training.optimizer.state() if local.keep_optimizer else {},
        tensors=tensors,
    )
    mean, seconds = math.fsum(losses) / len(losses), time.perf_counter() - began
    update = ClientUpdate(
        job.client, leaving.state, len(losses), effective, mean, seconds, found, leaving.message
    )
    return update, kept


def _keep_entries(
    method: Method, model: nn.Module, received: ModelState, trained: ModelState
) -> tuple[ModelState, dict[str, Tensor]]:
    """Return the model to send, and the entries of the trained one that stay with the client.

    What stays is sent back as it came: it moves nothing, and the server learns nothing.
    """
    names = frozenset() if method.personal is None else method.personal.entries(model)
    if not names:
        return trained, {}
    own, given = ({**state.params, **state.buffers} for state in (trained, received))
    kept = {f"{PERSONAL}{name}": own[name] for name in sorted(names)}
    return replace_entries(trained, {name: given[name] for name in names}), kept


def _compress(
    method: Method, received: ModelState, sent: ModelState, before: Tensors, job: TrainJob
) -> Compressed:
    """Return what leaves the client of its trained model, and what it keeps of the change."""
    if method.compression is None:
        return Compressed(sent)
    rest = select(before, f"{COMPRESSION}.")
    return method.compression.compress(received, sent, rest, job.seed, job.round)


def _distill(
    model: nn.Module,
    client: ClientDataset,
    job: TrainJob,
    method: Method,
    local: LocalConfig,
    kept: Tensors,
) -> None:
    """Train the network on public inputs towards what the server broadcasts, if it does."""
    spec = method.distillation
    if spec is None or client.dataset.public is None:
        return
    target = spec.target(job.broadcast, select(kept, DISTILLATION), job.client)
    if target is not None:
        learn(model, client.dataset, target, spec, local, job.seed, job.round, job.client)


def _train_own(
    model: nn.Module,
    client: ClientDataset,
    samples: Samples,
    job: TrainJob,
    method: Method,
    local: LocalConfig,
) -> ModelState:
    """Return the client's own model, trained from the network's weights on the same batches."""
    assert method.personal is not None
    own = method.personal.second
    assert own is not None
    loss = method.loss if own.own_loss == "method" else PLAIN_LOSS
    penalties = (Proximal(own.lam),) if own.lam else ()
    pulled = Method(f"{method.name}, own model", loss, penalties)
    training = _Training(model, client, job, pulled, local, NO_STATE)
    # Other random numbers than the shared model's, whose bits must not depend on this.
    with torch_stream(job.seed, "torch", "own", job.round, job.client):
        training.run(samples, (Stage(own.own_epochs or local.epochs),))
    return _finite_snapshot(model, pulled, job)


class _Training:
    """The training of a network in one client's round: the only training loop.

    Args:
        model: the network, with the weights to start from; it is put into training mode.
        client: the client's data, whose label counts the loss is bound to.
        job: the round, the seed and the state that penalties refer to.
        method: its loss and penalties are applied.
        local: the settings of local training.
        client_state: what the client kept from the last round it took part in.
    """

    def __init__(
        self,
        model: nn.Module,
        client: ClientDataset,
        job: TrainJob,
        method: Method,
        local: LocalConfig,
        client_state: ClientState,
    ) -> None:
        self.model, self.job, self.local = model.train(), job, local
        self._objective = _Objective(model, client, job, method, local, client_state)
        self.clip = _smaller(local.clip, method.needs.clip)
        self.lr = local.lr_in(job.round)
        further = self._objective.parameters()
        self.optimizer = LocalOptimizer(model, local, self.lr, client_state.optimizer, further)
        self.kept = self._objective.kept

    def run(self, samples: Samples, stages: Sequence[Stage]) -> list[float]:
        """Train stage by stage on these samples; return the objective of every step."""
        losses: list[float] = []
        epoch = 0
        for stage in stages:
            with _frozen(self.model, stage.frozen):
                for number in range(epoch, epoch + stage.epochs):
                    self._run_epoch(samples(number), number, losses)
            epoch += stage.epochs
        return losses

    def _run_epoch(self, samples: ClientDataset, epoch: int, losses: list[float]) -> None:
        for group in _groups(batches(samples, self.job, self.local, epoch), self.local.accumulate):
            self.optimizer.zero_grad()
            losses.append(self._objective.backward(group, len(losses)))
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
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


def measure_client(
    model: nn.Module, client: ClientDataset, job: TrainJob, method: Method, local: LocalConfig
) -> ClientUpdate:
    """Return the statistics of the job's state, which is a merged one, without any training."""
    began = time.perf_counter()
    restore(model, job.state)
    merged = due(method.statistics, job.round, "merged")
    found = _compute_statistics(merged, model, client, job, local, ({}, {}))
    return ClientUpdate(job.client, NO_MODEL, 0, 0.0, 0.0, time.perf_counter() - began, found)


def _compute_statistics(
    statistics: tuple[Statistic, ...],
    model: nn.Module,
    client: ClientDataset,
    job: TrainJob,
    local: LocalConfig,
    kept: tuple[Tensors, Tensors],
) -> dict[str, Tensor]:
    """Return the statistics of a client by full name, by the weights that the network has now.

    The network is left in evaluation mode.

    Args:
        statistics: what to compute.
        model: the network.
        client: the client's data.
        job: the round, and what was broadcast.
        local: the device and the memory format.
        kept: what the client kept before this round, and what it keeps after it.

    Raises:
        DivergedError: a statistic is not finite.
        ValueError: a statistic has another form than it declares.
    """
    if not statistics:
        return {}
    model.eval()
    view = ClientView(
        model,
        lambda: _rows(client, local),
        client.counts,
        _facts(model, client),
        job.round,
        job.broadcast,
        *kept,
        lambda: public_batches(client.dataset, local),
    )
    found: dict[str, Tensor] = {}
    for statistic in statistics:
        with torch.no_grad():
            values = {name: at_rest(value) for name, value in statistic.compute(view).items()}
        found |= _checked(statistic, values, job, view.facts)
    return found


def _facts(model: nn.Module, client: ClientDataset) -> ModelFacts:
    """Return what a client knows about the task and its network."""
    dataset = client.dataset
    public = 0 if dataset.public is None else len(dataset.public)
    return ModelFacts(dataset.task, len(dataset.classes), classifier_name(model), public=public)


def _checked(
    statistic: Statistic, values: Tensors, job: TrainJob, facts: ModelFacts
) -> dict[str, Tensor]:
    named = {f"{statistic.name}.{name}": value for name, value in values.items()}
    wanted = statistic_shapes((statistic,), job.state, facts)
    if (name := find_difference(wanted, named)) is not None:
        raise ValueError(f"statistic {name} has another type or shape than it declares")
    if not is_finite(ModelState(values, {})):
        raise DivergedError(
            f"round {job.round}, client {job.client}: the statistic {statistic.name} holds values "
            "that are not finite"
        )
    return named


def _rows(client: ClientDataset, local: LocalConfig) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield all samples of a client in the order of its rows, not augmented."""
    for start in range(0, len(client), STATISTICS_BATCH):
        yield _take(client, client.indices[start : start + STATISTICS_BATCH], local)


def _take(client: ClientDataset, rows: IntArray, local: LocalConfig) -> tuple[Tensor, Tensor]:
    """Return the samples of these rows, not augmented, as the network takes them."""
    dataset = client.dataset
    inputs = normalize(torch.from_numpy(dataset.train.inputs[rows]), dataset.mean, dataset.std)
    targets = torch.from_numpy(dataset.train.labels[rows])
    return place(inputs, local), targets.to(local.device)


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
        loss = method.loss
        if hasattr(loss, "receive"):
            loss = loss.receive(job.broadcast)
        self.loss = loss.bind(client.counts, client.dataset.task).to(local.device)
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
        images, targets = place(images, self.local), targets.to(self.local.device)
        outputs = self._outputs(images)
        objective = self.loss(outputs.logits, targets)
        loss = _finite(objective, self.method, self.job, step)
        done = Step(images, outputs, loss, targets, teacher)
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
