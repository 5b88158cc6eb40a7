"""Local training on one client: its data, its round from the received to the sent model."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
from fedbb.models.base import classifier_name
from fedbb.penalties.base import LocalResult
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
from fedbb.rng import stream
from fedbb.sampling import SAMPLING, SampleView, Sampling, TrainedView
from fedbb.state import (
    add_prefix,
    at_rest,
    find_difference,
    is_finite,
    replace_entries,
    restore,
    select,
)
from fedbb.statistics import ClientView, Moment, Statistic, due, statistic_shapes
from fedbb.training.config import LocalConfig, TrainJob, check_optimizer
from fedbb.training.distill import learn
from fedbb.training.loop import Batch, Batches, Training, Work, effective_steps, place

NO_STATE = ClientState()
NO_MODEL = ModelState({}, {})

FORWARD_BATCH = 256
"""Samples in a forward pass without training. It is fixed, since the bits of a sum depend on it."""


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

    def take(self, rows: IntArray, local: LocalConfig) -> tuple[Tensor, Tensor]:
        """Return the samples of these rows of the data set, not augmented, and their targets.

        Args:
            rows: rows of the whole data set.
            local: the device and the memory format.
        """
        dataset = self.dataset
        inputs = normalize(torch.from_numpy(dataset.train.inputs[rows]), dataset.mean, dataset.std)
        targets = torch.from_numpy(dataset.train.labels[rows])
        return place(inputs, local), targets.to(local.device)

    def in_order(self, local: LocalConfig) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all samples in the order of their rows, batch by batch, not augmented."""
        for start in range(0, len(self), FORWARD_BATCH):
            yield self.take(self.indices[start : start + FORWARD_BATCH], local)


def make_client_datasets(dataset: Dataset, clients: Sequence[IntArray]) -> list[ClientDataset]:
    """Return the part of every client, given its rows; all labels are counted here, once."""
    counts = count_groups(dataset.train.labels, clients, dataset.task, len(dataset.classes))
    with pause_collection():
        return [
            ClientDataset(dataset, indices, counted)
            for indices, counted in zip(clients, counts, strict=True)
        ]


def _round_batches(
    client: ClientDataset, job: TrainJob, sampling: Sampling, local: LocalConfig, view: SampleView
) -> Batches:
    """Return the batches that a client trains on in a round: of all its samples, by default."""
    chances = sampling.chances(view)
    if chances is not None:
        size = sampling.size(len(client))
        return lambda epoch: batches(
            _draw_epoch(client, job, size, chances, epoch), job, local, epoch
        )
    positions = sampling.draw(len(client), stream(job.seed, "draw", job.round, job.client))
    drawn = client
    if positions is not None:
        drawn = ClientDataset(client.dataset, client.indices[positions])
    return lambda epoch: batches(drawn, job, local, epoch)


def _draw_epoch(
    client: ClientDataset, job: TrainJob, size: int, chances: FloatArray, epoch: int
) -> ClientDataset:
    rng = stream(job.seed, "draw", job.round, job.client, epoch)
    positions = rng.choice(len(client), size, p=chances)
    return ClientDataset(client.dataset, client.indices[positions])


def _sample_view(client: ClientDataset, job: TrainJob, kept: Tensors) -> SampleView:
    """Return what a sampling sees of a client before it trains."""
    labels, classes = client.dataset.train.labels[client.indices], len(client.dataset.classes)
    return SampleView(labels, classes, select(kept, SAMPLING), job.broadcast)


def batches(
    client: ClientDataset, job: TrainJob, local: LocalConfig, epoch: int
) -> Iterator[Batch]:
    """Yield the batches of one epoch, normalized and, if the settings say so, augmented."""
    dataset, logits = client.dataset, client.dataset.train.teacher
    where = (job.round, job.client, epoch)
    order = stream(job.seed, "order", *where).permutation(len(client))
    draws = None
    if local.augment and dataset.augmentation != Augmentation():
        rng = stream(job.seed, "augment", *where)
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


def public_batches(dataset: Dataset, local: LocalConfig) -> Iterator[Tensor]:
    """Yield all public inputs in their order, as a network gets them."""
    public = dataset.public
    for start in range(0, 0 if public is None else len(public), FORWARD_BATCH):
        assert public is not None
        # A copy, since torch will not share the memory of a file that is mapped read-only.
        inputs = torch.tensor(public[start : start + FORWARD_BATCH])
        yield place(normalize(inputs, dataset.mean, dataset.std), local)


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
    received, before = job.state, client_state.tensors
    job = replace(job, state=_starting_model(method, received, before))
    work = Work(model, job, method, local, client.counts, client.dataset.task)
    restore(model, job.state)
    found = _compute_statistics(work, client, "start", (before, before))
    _distill(work, client.dataset, before)
    view = _sample_view(client, job, before)
    drawn = _round_batches(client, job, method.sampling, local, view)
    training = Training(work, client_state)
    losses = training.run(drawn, _stages(work))
    state = work.finite_snapshot()
    effective = effective_steps(len(losses), local)
    tensors = training.kept(LocalResult(job.state, state, effective, training.lr))
    sent, own = _keep_entries(work, received, state)
    tensors |= own
    found |= _compute_statistics(work, client, "end", (before, tensors))
    tensors |= _keep_distillation(method, found)
    tensors |= _keep_sampling(work, client, view)
    tensors |= _note_received(work, client, received)
    tensors |= _train_second(work, drawn, received, first or received, before)
    leaving = _compress(work, received, sent, before)
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


def _starting_model(method: Method, received: ModelState, before: Tensors) -> ModelState:
    """Return the received model, with the client's own entries if it keeps some."""
    if method.personal is None or method.personal.second is not None:
        return received
    return replace_entries(received, select(before, PERSONAL))


def _stages(work: Work) -> Sequence[Stage]:
    """Return the stages of the round: one in which all is trained, unless the method says more."""
    personal, epochs = work.method.personal, work.local.epochs
    return (Stage(epochs),) if personal is None else personal.stages(work.model, epochs)


def _keep_entries(
    work: Work, received: ModelState, trained: ModelState
) -> tuple[ModelState, dict[str, Tensor]]:
    """Return the model to send, and the entries of the trained one that stay with the client.

    What stays is sent back as it came: it moves nothing, and the server learns nothing.
    """
    personal = work.method.personal
    names = frozenset() if personal is None else personal.entries(work.model)
    if not names:
        return trained, {}
    own, given = ({**state.params, **state.buffers} for state in (trained, received))
    kept = {f"{PERSONAL}{name}": own[name] for name in sorted(names)}
    return replace_entries(trained, {name: given[name] for name in names}), kept


def _keep_distillation(method: Method, found: Tensors) -> dict[str, Tensor]:
    """Return what a client keeps for the distillation of its next round."""
    if method.distillation is None:
        return {}
    return add_prefix(DISTILLATION, method.distillation.keep(found))


def _keep_sampling(work: Work, client: ClientDataset, view: SampleView) -> dict[str, Tensor]:
    """Return what a client keeps for the sampling of its next round, after it has trained."""
    sampling, job = work.method.sampling, work.job
    if not sampling.keeps:
        return {}

    def inputs(positions: IntArray) -> tuple[Tensor, Tensor]:
        return client.take(client.indices[positions], work.local)

    rng = stream(job.seed, "probe", job.round, job.client)
    trained = TrainedView(work.model.eval(), job.state, inputs, rng)
    return add_prefix(SAMPLING, sampling.keep(view, trained))


def _compress(work: Work, received: ModelState, sent: ModelState, before: Tensors) -> Compressed:
    """Return what leaves the client of its trained model, and what it keeps of the change."""
    if work.method.compression is None:
        return Compressed(sent)
    rest, job = select(before, f"{COMPRESSION}."), work.job
    return work.method.compression.compress(received, sent, rest, job.seed, job.round)


def _distill(work: Work, dataset: Dataset, kept: Tensors) -> None:
    """Train the network on public inputs towards what the server broadcasts, if it does."""
    spec, job = work.method.distillation, work.job
    if spec is None or dataset.public is None:
        return
    target = spec.target(job.broadcast, select(kept, DISTILLATION), job.client)
    if target is not None:
        learn(work.model, dataset, target, spec, work.local, job.seed, job.round, job.client)


def _note_received(work: Work, client: ClientDataset, received: ModelState) -> dict[str, Tensor]:
    """Return what a client with a model of its own keeps of the received one."""
    personal = work.method.personal
    if personal is None or personal.second is None:
        return {}
    restore(work.model, received)
    with torch.no_grad():
        noted = personal.received(work.model.eval(), client.in_order(work.local))
    return add_prefix(PERSONAL, {name: at_rest(tensor) for name, tensor in noted.items()})


def _train_second(
    work: Work, drawn: Batches, received: ModelState, first: ModelState, before: Tensors
) -> dict[str, Tensor]:
    """Train the client's own model on the same batches, if the method has such; return it."""
    personal = work.method.personal
    if personal is None or personal.second is None:
        return {}
    own = personal.second
    restore(work.model, personal.model(received, first, select(before, PERSONAL)))
    loss = work.method.loss if own.own_loss == "method" else PLAIN_LOSS
    penalties = (Proximal(own.lam),) if own.lam else ()
    pulled = replace(work, method=Method(f"{work.method.name}, own model", loss, penalties))
    # Other random numbers than the shared model's, whose bits must not depend on this.
    training = Training(pulled, NO_STATE, "own")
    training.run(drawn, (Stage(own.own_epochs or work.local.epochs),))
    trained = pulled.finite_snapshot()
    return add_prefix(PERSONAL, {**trained.params, **trained.buffers})


def measure_client(
    model: nn.Module, client: ClientDataset, job: TrainJob, method: Method, local: LocalConfig
) -> ClientUpdate:
    """Return the statistics of the job's state, which is a merged one, without any training."""
    began = time.perf_counter()
    restore(model, job.state)
    work = Work(model, job, method, local, client.counts, client.dataset.task)
    found = _compute_statistics(work, client, "merged", ({}, {}))
    return ClientUpdate(job.client, NO_MODEL, 0, 0.0, 0.0, time.perf_counter() - began, found)


def _compute_statistics(
    work: Work, client: ClientDataset, moment: Moment, kept: tuple[Tensors, Tensors]
) -> dict[str, Tensor]:
    """Return the statistics of a client by full name, by the weights that the network has now.

    If there are any, the network is left in evaluation mode.

    Args:
        work: the network, the round, and what was broadcast.
        client: the client's data.
        moment: when they are computed.
        kept: what the client kept before this round, and what it keeps after it.

    Raises:
        DivergedError: a statistic is not finite.
        ValueError: a statistic has another form than it declares.
    """
    job, local = work.job, work.local
    statistics = due(work.method.statistics, job.round, moment)
    if not statistics:
        return {}
    view = ClientView(
        work.model.eval(),
        lambda: client.in_order(local),
        client.counts,
        _facts(work.model, client.dataset),
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


def _facts(model: nn.Module, dataset: Dataset) -> ModelFacts:
    """Return what a client knows about the task and its network."""
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
