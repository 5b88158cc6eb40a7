"""From a recipe to a federation: data loaded, shortened, held out and divided among clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from fedbb.data.dataset import Dataset, Examples, check_dataset
from fedbb.data.download import Progress
from fedbb.data.registry import load_dataset
from fedbb.data.source import Source
from fedbb.data.splits import hold_out
from fedbb.errors import RecipeError
from fedbb.imbalance import count_labels
from fedbb.methods import Method
from fedbb.partition.partition import Partition
from fedbb.partition.registry import Rule, divide
from fedbb.recipes.reader import refuse_python
from fedbb.recipes.spec import DataSpec, Recipe
from fedbb.records import LabelCounts
from fedbb.rng import stream
from fedbb.runs.metadata import ClientRecord, FederationRecord, describe_clients
from fedbb.simulation.inline import make_client_infos
from fedbb.training.local import ClientDataset, make_client_datasets

SHOWN = 1000
"""Clients whose loss is described one by one; nobody reads notes on more of them."""

EVERYTHING = Rule("even", clients=1, seed=0)
"""Central training: one client that holds all data."""


@dataclass(frozen=True, eq=False)
class Federation:
    """A data set as its clients share it.

    Attributes:
        dataset: The data; its training examples are divided among the clients.
        partition: Which examples each client has.
        scored: Examples that rounds are scored on, by name: "test", and "validation" if any.
    """

    dataset: Dataset
    partition: Partition
    scored: dict[str, Examples]

    @cached_property
    def clients(self) -> list[ClientDataset]:
        """Each client's part of the training data."""
        return make_client_datasets(self.dataset, self.partition.clients)


def prepare(recipe: Recipe, progress: Progress | None = None) -> Federation:
    """Load and divide the data of a recipe.

    Args:
        recipe: A recipe whose parts suit each other.
        progress: Called with the number of images decoded so far and in all.

    Raises:
        DataError: The data cannot be read, has fewer images than the recipe asks for, or cannot be
            divided by the recipe's rule.
        RecipeError: The recipe only records a run that was made from Python.
    """
    refuse_python(recipe)
    dataset, scored = _load(recipe.data, recipe.seed, progress)
    rule = EVERYTHING if recipe.engine == "central" else recipe.data.partition
    partition = divide(rule.resolve(recipe.seed), dataset.train, dataset.task)
    if recipe.data.normalize == "federated":
        dataset = dataset.normalized(partition.clients)
    return Federation(dataset, partition, scored)


def describe(federation: Federation, method: Method) -> FederationRecord:
    """Return what a simulation knows of its clients: sizes, counts and weights, and notes on them.

    The server of a deployed federation sees of this only each client's size and dispersion.
    """
    dataset, counts = federation.dataset, [client.counts for client in federation.clients]
    infos = make_client_infos(federation.clients, method.weighting)
    clients = [
        replace(
            client,
            loss_weight=method.loss.mean_weight(count, dataset.task) if number < SHOWN else None,
            positives=tuple(count.positive.tolist()),
        )
        for number, (client, count) in enumerate(
            zip(describe_clients(infos, method), counts, strict=True)
        )
    ]
    whole = count_labels(dataset.train.labels, dataset.task, len(dataset.classes))
    return replace(
        describe_private(federation),
        positives=tuple(whole.positive.tolist()),
        clients=tuple(clients),
        notes=(*dataset.notes, *_notes(counts, dataset, method)),
    )


def describe_private(federation: Federation) -> FederationRecord:
    """Return what the server of a private run knows: the number of clients, and of all samples.

    It has the examples that rounds are scored on, and learns the number of all others from a sum.
    """
    dataset = federation.dataset
    return FederationRecord(
        data=dataset.name,
        task=dataset.task,
        classes=dataset.classes,
        train=len(dataset.train),
        scored={name: len(examples) for name, examples in federation.scored.items()},
        positives=None,
        clients=tuple(ClientRecord(client) for client in range(len(federation.partition.clients))),
        notes=dataset.notes,
        scored_cases={
            name: count_labels(examples.labels, dataset.task, len(dataset.classes))
            for name, examples in federation.scored.items()
        },
    )


def _load(
    spec: DataSpec, seed: int, progress: Progress | None
) -> tuple[Dataset, dict[str, Examples]]:
    path = None if spec.path is None else Path(spec.path)
    source = Source(spec.name, path=path, options=spec.options, progress=progress)
    dataset = _prepare_inputs(load_dataset(source), spec)
    scored = {"test": dataset.test}
    if dataset.validation is not None:
        scored["validation"] = dataset.validation
        if spec.validation > 0:
            raise RecipeError(
                f"data.validation is {spec.validation}, but {dataset.name} has a validation part "
                "of its own; leave one of them out"
            )
    if spec.validation > 0:
        train, scored["validation"] = hold_out(
            dataset.train, spec.validation, stream(seed, "validation"), by=spec.validation_by
        )
        dataset = replace(dataset, train=train)
    if spec.train_images is not None:
        dataset = dataset.subset(spec.train_images, seed)
    if spec.long_tail is not None:
        dataset = dataset.long_tail(spec.long_tail, seed)
    return dataset, scored


def _prepare_inputs(dataset: Dataset, spec: DataSpec) -> Dataset:
    """Return the data set with the normalization and augmentation that a recipe asks for."""
    if spec.normalize == "none":
        dataset = replace(dataset, mean=(), std=())
    elif spec.normalize == "training":
        dataset = dataset.normalized()
    if spec.crop is None and spec.flip is None:
        return dataset
    own = dataset.augmentation
    crop = own.crop if spec.crop is None else spec.crop
    flip = own.flip if spec.flip is None else spec.flip
    return check_dataset(replace(dataset, augmentation=replace(own, crop=crop, flip=flip)))


def _notes(counts: list[LabelCounts], dataset: Dataset, method: Method) -> list[str]:
    notes = [
        f"client {client}: {note}"
        for client, count in enumerate(counts[:SHOWN])
        for note in method.loss.diagnostics(count, dataset.task)
    ]
    if len(counts) > SHOWN:
        notes.append(f"loss weights and notes are of the first {SHOWN} of {len(counts)} clients")
    held = np.sum([count.positive for count in counts], axis=0)
    absent = [name for name, number in zip(dataset.classes, held, strict=True) if number == 0]
    if absent:
        notes.append(f"no client holds a case of {', '.join(absent)}")
    return notes
