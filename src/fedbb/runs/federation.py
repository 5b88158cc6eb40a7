"""From a recipe to a federation: data loaded, shortened, held out and divided among clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedbb.aggregation.weighting import BySamples
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.download import Progress
from fedbb.data.longtail import long_tail
from fedbb.data.registry import load_dataset
from fedbb.data.source import Source
from fedbb.data.splits import hold_out
from fedbb.errors import RecipeError
from fedbb.imbalance.counts import count_labels
from fedbb.methods import Method
from fedbb.partition.partition import Partition
from fedbb.partition.registry import Rule, divide
from fedbb.recipes.spec import DataSpec, Recipe
from fedbb.records import LabelCounts
from fedbb.rng import stream
from fedbb.simulation.base import make_client_infos
from fedbb.training.client_dataset import ClientDataset, make_client_datasets

TOLD = 1000
"""Clients whose loss is looked at one by one; what is said of more of them nobody reads."""

EVERYTHING = Rule("even", clients=1)
"""Central training: one client that holds all."""


@dataclass(frozen=True, eq=False)
class Federation:
    """A data set as its clients share it, and the examples that rounds are scored on."""

    dataset: Dataset
    partition: Partition
    scored: dict[str, Examples]

    @cached_property
    def shares(self) -> list[ClientDataset]:
        """Each client's part of the training data."""
        return make_client_datasets(self.dataset, self.partition.clients)


def prepare(recipe: Recipe, progress: Progress | None = None) -> Federation:
    """Load and divide the data of a recipe."""
    dataset, scored = _load(recipe.data, recipe.seed, progress)
    rule = EVERYTHING if recipe.engine == "central" else _rule(recipe)
    return Federation(dataset, divide(rule, dataset.train, dataset.task), scored)


def _rule(recipe: Recipe) -> Rule:
    spec = recipe.data.partition
    least = {} if spec.min_samples is None else {"min_samples": spec.min_samples}
    return Rule(
        kind=spec.kind,
        clients=spec.clients,
        concentration=spec.concentration,
        seed=recipe.seed if spec.seed is None else spec.seed,
        column=spec.column,
        path=None if spec.path is None else Path(spec.path),
        **least,
    )


def describe(federation: Federation, method: Method) -> dict[str, Any]:
    """Return what a simulation knows of its clients: sizes, counts and weights, and notes on them.

    A server in the field sees of this only each client's size and dispersion.
    """
    dataset, shares = federation.dataset, federation.shares
    counts = [share.counts for share in shares]
    infos = make_client_infos(shares, method.weighting)
    weights, by_size = method.weighting(infos), BySamples()(infos)
    clients = [
        {
            "client": info.client,
            "samples": info.samples,
            "dispersion": info.dispersion,
            "weight": float(weights[info.client]),
            "weight_by_samples": float(by_size[info.client]),
            "loss_weight": (
                method.loss.mean_weight(count, dataset.task) if info.client < TOLD else None
            ),
            "positives": count.positive.tolist(),
        }
        for info, count in zip(infos, counts, strict=True)
    ]
    whole = count_labels(dataset.train.labels, dataset.task, len(dataset.classes))
    return {
        "data": dataset.name,
        "task": str(dataset.task),
        "classes": list(dataset.classes),
        "train": len(dataset.train),
        "scored": {name: len(examples) for name, examples in federation.scored.items()},
        "positives": whole.positive.tolist(),
        "clients": clients,
        "notes": [*dataset.notes, *_notes(counts, dataset, method)],
    }


def describe_hidden(federation: Federation) -> dict[str, Any]:
    """Return what the server of a private run knows of its clients: how many, and how much in all.

    It has the examples that rounds are scored on, and learns the number of all others from a sum.
    """
    dataset = federation.dataset
    return {
        "data": dataset.name,
        "task": str(dataset.task),
        "classes": list(dataset.classes),
        "train": len(dataset.train),
        "scored": {name: len(examples) for name, examples in federation.scored.items()},
        "positives": None,
        "clients": [{"client": client} for client in range(len(federation.partition.clients))],
        "notes": list(dataset.notes),
    }


def _load(
    spec: DataSpec, seed: int, progress: Progress | None
) -> tuple[Dataset, dict[str, Examples]]:
    path = None if spec.path is None else Path(spec.path)
    source = Source(spec.name, path=path, options=spec.options, progress=progress)
    dataset = load_dataset(source)
    train, scored = dataset.train, {"test": dataset.test}
    if spec.validation > 0:
        train, held = hold_out(
            train, spec.validation, stream(seed, "validation"), by=spec.validation_by
        )
        scored["validation"] = held
    if spec.train_images is not None:
        train = _some(train, spec.train_images, stream(seed, "train images"))
    if spec.long_tail is not None:
        rng = stream(seed, "long tail")
        train = long_tail(train, len(dataset.classes), spec.long_tail, rng)
    return replace(dataset, train=train), scored


def _some(train: Examples, number: int, rng: np.random.Generator) -> Examples:
    """Return so many of the examples, drawn at random, in their old order."""
    if number > len(train):
        raise RecipeError(
            f"data.train_images = {number} is refused: there are {len(train)} to train on"
        )
    return train.take(np.sort(rng.choice(len(train), number, replace=False)))


def _notes(counts: list[LabelCounts], dataset: Dataset, method: Method) -> list[str]:
    notes = [
        f"client {client}: {remark}"
        for client, count in enumerate(counts[:TOLD])
        for remark in method.loss.diagnostics(count, dataset.task)
    ]
    if len(counts) > TOLD:
        notes.append(f"loss weights and notes are of the first {TOLD} of {len(counts)} clients")
    held = np.sum([count.positive for count in counts], axis=0)
    absent = [name for name, number in zip(dataset.classes, held, strict=True) if number == 0]
    if absent:
        notes.append(f"no client holds a case of {', '.join(absent)}")
    return notes
