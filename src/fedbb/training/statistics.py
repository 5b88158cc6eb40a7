"""The statistics of a method at a client: computed by a given state, and checked."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fedbb.data.transforms import normalize
from fedbb.errors import DivergedError
from fedbb.models.base import classifier_name
from fedbb.records import ModelFacts, ModelState, Tensors
from fedbb.state import at_rest, find_difference, is_finite
from fedbb.statistics.base import ClientView, Statistic, statistic_shapes
from fedbb.training.client_dataset import ClientDataset
from fedbb.training.config import LocalConfig, TrainJob

BATCH = 256
"""Samples in a forward pass. It is fixed, since the bits of a sum depend on it."""


def compute_statistics(
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
        lambda: _batches(client, local),
        client.counts,
        model_facts(model, client),
        job.round,
        job.broadcast,
        *kept,
    )
    found: dict[str, Tensor] = {}
    for statistic in statistics:
        with torch.no_grad():
            values = {name: at_rest(value) for name, value in statistic.compute(view).items()}
        found |= _checked(statistic, values, job, view.facts)
    return found


def model_facts(model: nn.Module, client: ClientDataset) -> ModelFacts:
    """Return what a client knows about the task and its network."""
    dataset = client.dataset
    return ModelFacts(dataset.task, len(dataset.classes), classifier_name(model))


def place_inputs(inputs: Tensor, local: LocalConfig) -> Tensor:
    """Return a batch on the device and in the memory format of local training."""
    if local.channels_last and inputs.ndim == 4 and inputs.is_floating_point():
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return inputs.to(local.device)


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


def _batches(client: ClientDataset, local: LocalConfig) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield all samples of a client in the order of its rows, not augmented."""
    dataset = client.dataset
    for start in range(0, len(client), BATCH):
        rows = client.indices[start : start + BATCH]
        inputs = normalize(torch.from_numpy(dataset.train.inputs[rows]), dataset.mean, dataset.std)
        targets = torch.from_numpy(dataset.train.labels[rows])
        yield place_inputs(inputs, local), targets.to(local.device)
