"""From a recipe to a federation: data loaded, shortened, held out and divided among clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from fedbb.aggregation.merging import Weighting
from fedbb.data.checks import check_dataset
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.download import Progress, sha256_of
from fedbb.data.public import public_digest, take_public, with_public
from fedbb.data.registry import load_dataset
from fedbb.data.source import Source
from fedbb.data.splits import hold_out
from fedbb.data.statistics import ChannelSums
from fedbb.data.teacher_file import with_teacher
from fedbb.errors import DataError, RecipeError, RunError
from fedbb.evaluation.sites import OWN_TEST as OWN_TEST
from fedbb.imbalance import count_labels
from fedbb.methods import Method
from fedbb.partition.partition import Partition
from fedbb.partition.registry import Rule, divide
from fedbb.recipes.reader import refuse_python
from fedbb.recipes.spec import OWN_TEACHER, DataSpec, PublicSpec, PythonRecipe, Recipe
from fedbb.records import ClientInfo, IntArray, LabelCounts
from fedbb.rng import stream
from fedbb.runs.metadata import ClientRecord, FederationRecord, describe_clients
from fedbb.simulation.inline import make_client_infos
from fedbb.training.local import ClientDataset, make_client_datasets

SHOWN = 1000
"""Clients whose loss is described one by one; nobody reads notes on more of them."""

EVERYTHING = Rule("even", clients=1, seed=0)
"""Central training: one client that holds all data."""


CHANNEL_SUMS = "channel-sums"
"""Name of the sums of inputs among what clients of a private run measure before round 1."""


@dataclass(frozen=True, eq=False)
class OwnTest:
    """What clients keep of their own data to test the shared model on.

    Attributes:
        examples: The examples of all clients.
        owners: The client of each, (N,).
    """

    examples: Examples
    owners: IntArray


@dataclass(frozen=True, eq=False)
class Federation:
    """A data set as its clients share it.

    Attributes:
        dataset: The data; its training examples are divided among the clients.
        partition: Which examples each client has.
        scored: Examples that rounds are scored on, by name: "test", and "validation" if any.
        own_test: The clients' own test data, if they keep some.
    """

    dataset: Dataset
    partition: Partition
    scored: dict[str, Examples]
    own_test: OwnTest | None = None

    @cached_property
    def clients(self) -> list[ClientDataset]:
        """Each client's part of the training data."""
        return make_client_datasets(self.dataset, self.partition.clients)

    def client_infos(self, weighting: Weighting) -> Sequence[ClientInfo]:
        """Return what the server learns of every client under this weighting.

        They are made once for each weighting: a million clients take seconds.
        """
        if id(weighting) not in self._infos:
            # With the weighting itself, so that no other object gets its id.
            self._infos[id(weighting)] = weighting, make_client_infos(self.clients, weighting)
        return self._infos[id(weighting)][1]

    @cached_property
    def _infos(self) -> dict[int, tuple[Weighting, list[ClientInfo]]]:
        return {}


def prepare(
    recipe: Recipe, progress: Progress | None = None, *, teacher: str | None = None
) -> Federation:
    """Load and divide the data of a recipe.

    Args:
        recipe: A recipe whose parts suit each other.
        progress: Called with the number of images decoded so far and in all.
        teacher: File of a teacher's logits for the training data, where the method needs them.

    Raises:
        DataError: The data cannot be read, has fewer images than the recipe asks for, or cannot be
            divided by the recipe's rule.
        RecipeError: The recipe only records a run that was made from Python.
        RunError: The teacher's file is not the one that the run began with.
    """
    refuse_python(recipe)
    dataset, scored = _load(recipe, progress, teacher)
    rule = EVERYTHING if recipe.engine == "central" else recipe.data.partition
    partition = divide(rule.resolve(recipe.seed), dataset.train, dataset.task)
    federation = Federation(dataset, partition, scored)
    if recipe.data.own_test > 0:
        federation = keep_own_test(federation, recipe.data, recipe.seed)
    if recipe.data.normalize == "federated" and not sums_inputs(recipe):
        normalized = federation.dataset.normalized(federation.partition.clients)
        federation = replace(federation, dataset=normalized)
    if recipe.data.label_noise > 0:
        # After the partition, so that runs with and without noise divide the data alike.
        rate, kind = recipe.data.label_noise, recipe.data.label_noise_kind
        noisy = federation.dataset.with_label_noise(rate, kind, recipe.seed)
        federation = replace(federation, dataset=noisy)
    return federation


def sums_inputs(recipe: Recipe) -> bool:
    """Return whether inputs are normalized by a secure sum, which is known once a run is set up."""
    return recipe.data.normalize == "federated" and recipe.privacy != "none"


def measure_inputs(dataset: Dataset, rows: IntArray) -> dict[str, IntArray]:
    """Return what one client adds to the sum from which all of them normalize their inputs."""
    return {CHANNEL_SUMS: dataset.channel_sums(rows).to_limbs()}


def normalize_by_sums(dataset: Dataset, measured: Mapping[str, IntArray], clients: int) -> Dataset:
    """Return the data set normalized by the sum over this number of clients."""
    return dataset.normalized_by([ChannelSums.from_limbs(measured[CHANNEL_SUMS], clients)])


def group_column(spec: DataSpec, examples: Examples) -> str | None:
    """Return the column whose values are not independent: `validation_by`, or the patient."""
    names = (spec.validation_by, "patient")
    return next((name for name in names if name is not None and name in examples.columns), None)


def keep_own_test(federation: Federation, spec: DataSpec, seed: int) -> Federation:
    """Return the federation whose clients keep `spec.own_test` of their data for tests.

    The draw is seeded, and by patients where they are known; otherwise each class of a client gives
    its share, as far as numbers allow. A client with one sample or patient keeps none.

    Raises:
        DataError: No client can keep any.
    """
    train, clients = federation.dataset.train, federation.partition.clients
    by = group_column(spec, train)
    held = [
        _draw(train, rows, spec.own_test, stream(seed, "own-test", client), by)
        for client, rows in enumerate(clients)
    ]
    owners = np.repeat(np.arange(len(held)), [len(rows) for rows in held])
    rows = np.concatenate(held)
    if len(rows) == 0:
        raise DataError(
            f"no client can keep {spec.own_test:g} of its data: all have one {by or 'sample'}"
        )
    kept = np.setdiff1d(np.arange(len(train)), rows)
    return replace(
        federation,
        dataset=replace(federation.dataset, train=train.take(kept)),
        partition=federation.partition.restrict(kept, train.labels),
        own_test=OwnTest(train.take(rows), owners),
    )


def _draw(
    train: Examples, rows: IntArray, share: float, rng: np.random.Generator, by: str | None
) -> IntArray:
    """Return the rows of a client that it keeps for tests, in ascending order."""
    if len(np.unique(rows if by is None else train.columns[by][rows])) < 2:
        return rows[:0]
    if by is not None:
        columns = {by: train.columns[by][rows]}
        return hold_out(Examples(rows, rows, columns), share, rng, by=by)[1].labels
    labels = train.labels[rows]
    if labels.ndim == 2:  # equal sets of labels lie together
        labels = np.unique(np.nan_to_num(labels, nan=2.0), axis=0, return_inverse=True)[1]
    order = np.lexsort((rng.random(len(rows)), labels.ravel()))
    # Every 1/share-th of the sorted samples, from a drawn place on: each class gives its share.
    steps = np.floor(np.arange(len(rows) + 1) * share + rng.random())
    chosen = order[np.flatnonzero(np.diff(steps))]
    if len(chosen) == 0:
        chosen = order[rng.integers(len(order), size=1)]
    return np.sort(rows[chosen[: len(rows) - 1]])


def digests_of(recipe: Recipe, federation: Federation) -> dict[str, str]:
    """Return the SHA-256 of what a run reads beside its data, by the key of the recipe.

    The recipe of a run from Python has them among its fingerprints.
    """
    if isinstance(recipe, PythonRecipe):
        return {}
    found: dict[str, str] = {}
    if federation.dataset.public is not None:
        found["data.public"] = public_digest(federation.dataset.public)
    if recipe.model.weights is not None:
        found["model.weights"] = sha256_of(Path(recipe.model.weights))
    return found


def describe(federation: Federation, method: Method) -> FederationRecord:
    """Return what a simulation knows of its clients: sizes, counts and weights, and notes on them.

    The server of a deployed federation sees of this only each client's size and dispersion.
    """
    dataset, counts = federation.dataset, [client.counts for client in federation.clients]
    clients = describe_clients(federation.client_infos(method.weighting), method)
    scales = np.full(len(counts), np.nan)
    scales[:SHOWN] = [method.loss.mean_weight(count, dataset.task) for count in counts[:SHOWN]]
    positives = np.array([count.positive for count in counts])
    whole = count_labels(dataset.train.labels, dataset.task, len(dataset.classes))
    return replace(
        _describe_data(federation),
        positives=tuple(whole.positive.tolist()),
        clients=replace(clients, loss_weight=scales, positives=positives),
        notes=(*dataset.notes, *_notes(counts, dataset, method)),
    )


def describe_private(federation: Federation) -> FederationRecord:
    """Return what the server of a private run knows: the number of clients, and of all samples.

    It has the examples that rounds are scored on, and learns the number of all others from a sum.
    """
    numbers = range(len(federation.partition.clients))
    return replace(_describe_data(federation), clients=[ClientRecord(number) for number in numbers])


def _describe_data(federation: Federation) -> FederationRecord:
    """Return what is known of the data, without the clients."""
    dataset = federation.dataset
    return FederationRecord(
        data=dataset.name,
        task=dataset.task,
        classes=dataset.classes,
        train=len(dataset.train),
        scored={name: len(examples) for name, examples in federation.scored.items()},
        positives=None,
        clients=(),
        notes=dataset.notes,
        scored_cases={
            name: count_labels(examples.labels, dataset.task, len(dataset.classes))
            for name, examples in federation.scored.items()
        },
    )


def _load(
    recipe: Recipe, progress: Progress | None, teacher: str | None
) -> tuple[Dataset, dict[str, Examples]]:
    spec, seed = recipe.data, recipe.seed
    path = None if spec.path is None else Path(spec.path)
    source = Source(spec.name, path=path, options=spec.options, progress=progress)
    dataset = _prepare_inputs(load_dataset(source), spec)
    if teacher:
        wanted = recipe.method.teacher_sha256
        dataset = with_teacher(dataset, teacher, None if wanted == OWN_TEACHER else wanted)
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
    if spec.public is not None:
        dataset = _add_public(dataset, spec.public, seed, progress)
    if spec.train_images is not None:
        dataset = dataset.subset(spec.train_images, seed)
    if spec.long_tail is not None:
        dataset = dataset.long_tail(spec.long_tail, seed)
    return dataset, scored


def _add_public(
    dataset: Dataset, spec: PublicSpec, seed: int, progress: Progress | None
) -> Dataset:
    """Return the data set with the public inputs of a recipe."""
    if spec.name is None:
        assert spec.images is not None  # the recipe was checked
        return take_public(dataset, spec.images, seed)
    path = None if spec.path is None else Path(spec.path)
    source = Source(spec.name, path=path, options=spec.options, progress=progress)
    return with_public(dataset, load_dataset(source), spec.images, seed)


def load_public(recipe: Recipe, like: Dataset) -> Dataset:
    """Return a data set of this form with the recipe's public inputs, where it has no others.

    Args:
        recipe: A checked recipe.
        like: The form of the data, possibly without any example.

    Raises:
        DataError: The public inputs cannot be read, or have another form.
        RunError: They are taken out of training data, which is not here.
    """
    spec = recipe.data.public
    if spec is None:
        return like
    if spec.name is None:
        raise RunError(
            "data.public takes its inputs out of the training data, which this server has not: "
            'name a data set in data.public, or let the server score (score = "server")'
        )
    return _add_public(like, spec, recipe.seed, None)


def _prepare_inputs(dataset: Dataset, spec: DataSpec) -> Dataset:
    """Return the data set with the normalization and augmentation that a recipe asks for."""
    if spec.normalize == "none":
        dataset = replace(dataset, mean=(), std=())
    elif spec.normalize == "training":
        dataset = dataset.normalized()
    asked = {key: getattr(spec, key) for key in ("crop", "flip", "padding")}
    given = {key: value for key, value in asked.items() if value is not None}
    if not given:
        return dataset
    return check_dataset(replace(dataset, augmentation=replace(dataset.augmentation, **given)))


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
