"""A site: one client of a recipe with its own data and state; it trains and scores on request."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch import nn

from fedbb._util.files import remove_leftovers
from fedbb._util.text import quote
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.public import public_digest
from fedbb.errors import RunError
from fedbb.evaluation.metrics import Scorer, Scores, score_logits
from fedbb.evaluation.operating_point import count_by_odds
from fedbb.flower.app.prepared_data import ClientData, open_client_data
from fedbb.flower.app.serde import VERSIONS, Outline, TrainRequest, read_arrays
from fedbb.flower.app.settings import SiteSettings
from fedbb.methods import Method
from fedbb.models.base import classifier_name
from fedbb.personal import PERSONAL
from fedbb.recipes.check import check_named_code, method_of
from fedbb.recipes.spec import Recipe
from fedbb.records import (
    ClientInfo,
    ClientState,
    ClientUpdate,
    FloatArray,
    IntArray,
    ModelFacts,
    ModelState,
    Tensors,
)
from fedbb.rounds.server_steps import measure_counts
from fedbb.runs.checkpoint import ClientStateFiles
from fedbb.runs.federation import OWN_TEST
from fedbb.runs.runtime import local_config_of, network_of
from fedbb.simulation.inline import ClientStateStore, train_apart
from fedbb.state import flatten_client_state, select, snapshot, unflatten_client_state
from fedbb.statistics import due, moments_of, statistic_shapes
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import NO_STATE, ClientDataset, measure_client, train_client

log = logging.getLogger("fedbb")


@dataclass(frozen=True)
class Trained:
    """An update, whether the site stored a client state with it, and whether an older was lost."""

    update: ClientUpdate
    kept: bool
    lost: bool


@dataclass(frozen=True, eq=False)
class Site:
    """A client's data with the recipe it follows, and the method that it trains by."""

    client: int
    recipe: Recipe
    method: Method
    data: ClientData
    allowed_code: tuple[str, ...] = ()

    @property
    def train_data(self) -> ClientDataset:
        """The examples that this client trains on."""
        return self.data.train

    @property
    def dataset(self) -> Dataset:
        """The data set that holds the client's examples."""
        return self.data.train.dataset

    @property
    def config(self) -> LocalConfig:
        """How the recipe's clients train."""
        return local_config_of(self.recipe)

    @cached_property
    def _network(self) -> nn.Module:
        """Return the recipe's network; the state in each message takes the place of weights."""
        recipe = self._with_model(weights=None)
        return network_of(recipe, self.method, self.dataset, allow_code=self.allowed_code)

    def _with_model(self, **changes: object) -> Recipe:
        """Return the recipe with the network of this client."""
        model = self.recipe.model.of_client(self.client).model_copy(update=changes)
        return self.recipe.model_copy(update={"model": model})

    @cached_property
    def _first(self) -> ModelState | None:
        """The model that the run began with, if the client has a model of its own."""
        personal, apart = self.method.personal, bool(self.recipe.model.by_client)
        if personal is None or (personal.second is None and not apart):
            return None
        # Of a network that nothing was trained in yet; sites have no file of weights.
        recipe, code = self._with_model(), self.allowed_code
        network = network_of(recipe, self.method, self.dataset, device="cpu", allow_code=code)
        return snapshot(network)

    def info(self) -> ClientInfo:
        """Return all that this site ever reports about its data."""
        return self.data.info

    def measured(self) -> dict[str, IntArray]:
        """Return what the recipe measures of the labels; the server learns the sum."""
        adjusts = bool(self.recipe.evaluation.logit_adjustment)
        return measure_counts(self.method, self.train_data.counts, label_counts=adjusts)

    def statistic_shapes(self, state: ModelState, number: int, *, measure: bool = False) -> Tensors:
        """Return the shapes of the statistics that are due in a job, by full name."""
        wanted = due(self.method.statistics, number, *moments_of(measure=measure))
        if not wanted:
            return {}
        classifier = classifier_name(self._network)
        public = 0 if self.dataset.public is None else len(self.dataset.public)
        facts = ModelFacts(self.dataset.task, len(self.dataset.classes), classifier, public=public)
        return statistic_shapes(wanted, state, facts)

    def outline(self) -> Outline:
        """Return what must agree with the other sites; the data goes by the recipe's own name."""
        return replace(outline_of(self.dataset), data=self.recipe.data.name)

    def train(self, request: TrainRequest, store: ClientStateStore) -> Trained:
        """Do a job; the client's state is on disk before the reply leaves."""
        job = request.job
        if job.client != self.client:
            raise RunError(f"this site is client {self.client}, and the job is for {job.client}")
        if job.measure:
            network = self._network
            update = measure_client(network, self.train_data, job, self.method, self.config)
            return Trained(update, kept=False, lost=False)
        state, lost = NO_STATE, False
        if request.since is not None:
            try:
                state = store.load(self.client, request.since)
            except RunError:
                lost = True
        update, kept = self._train(job, state)
        if kept == NO_STATE:
            return Trained(update, kept=False, lost=lost)
        store.save(self.client, job.round, kept)
        # The server may discard this round's reply and ask again from the state it named.
        store.keep_only(self.client, {job.round, request.since or job.round})
        return Trained(update, kept=True, lost=lost)

    def _train(self, job: TrainJob, state: ClientState) -> tuple[ClientUpdate, ClientState]:
        data, method, config = self.train_data, self.method, self.config
        if self.recipe.model.by_client:
            assert self._first is not None
            return train_apart(self._network, data, job, method, config, state, self._first)
        return train_client(self._network, data, job, method, config, state, self._first)

    def own_model(
        self, state: ModelState, since: int | None, store: ClientStateStore
    ) -> ModelState:
        """Return the model of this site's client.

        Args:
            state: The shared model, or the one that the server has for this client.
            since: The round of the client's state; None if it took part in none.
            store: Where the state is.
        """
        if self.method.personal is None:
            return state
        kept: Tensors = {}
        if since is not None:
            try:
                kept = select(store.load(self.client, since).tensors, PERSONAL)
            except RunError as error:
                log.warning("the model of this site is scored without what was lost: %s", error)
        if self.recipe.model.by_client and self._first is not None:
            state = self._first  # no model is shared
        return self.method.personal.model(state, self._first or state, kept)

    def score(self, state: ModelState) -> dict[str, Scores]:
        """Return the scores of a model on test and validation data."""
        held = self.data.scored.items()
        return self._scorer({n: part for n, part in held if len(part) and n != OWN_TEST})(state)

    def score_own(self, state: ModelState, shift: FloatArray | None = None) -> dict[str, Scores]:
        """Return the scores of a model on what this site keeps of its own data for tests.

        Args:
            state: The model.
            shift: What is added to its logits, (C,), so that it decides at its operating point.

        Raises:
            RunError: The site keeps none.
        """
        part = self._held(OWN_TEST, "test data of its own")
        logits = self._scorer({OWN_TEST: part}).outputs(state)[OWN_TEST]
        if shift is not None:
            logits = logits + shift
        return {OWN_TEST: score_logits(logits, part.labels, self.dataset.task)}

    def count_cases(self, state: ModelState) -> IntArray:
        """Return the site's validation cases by the log-odds that a model gives them.

        Raises:
            RunError: The site has no validation data, or the recipe chooses no thresholds.
        """
        if self.recipe.evaluation.threshold is None:
            raise RunError("the recipe chooses no thresholds, for which cases would be counted")
        part = self._held("validation", "validation data")
        logits = self._scorer({"validation": part}).outputs(state)["validation"]
        return count_by_odds(logits, part.labels, self.dataset.task)

    def _held(self, name: str, title: str) -> Examples:
        part = self.data.scored.get(name)
        if part is None or not len(part):
            raise RunError(f"this site keeps no {title}")
        return part

    def _scorer(self, examples: dict[str, Examples]) -> Scorer:
        batch = self.recipe.evaluation.batch_size
        return Scorer(self._network, self.dataset, examples, batch, self.config.device)


class OpenSites:
    """The sites of the last runs with their data, which a process that stays keeps open.

    A run's data is looked up on disk at its first message, and stays as it was then.
    """

    def __init__(self) -> None:
        self.limit = 0
        """The number of sites that are kept; none in a process that ends after a message."""
        self._sites: dict[tuple[str, str, SiteSettings], Site] = {}

    def open(self, recipe: Recipe, settings: SiteSettings, run: str) -> Site:
        """Return the site of a recipe's client in a run."""
        key = (run, recipe.model_dump_json(), settings)
        # The site used last goes to the end.
        site = self._sites.pop(key, None) or _open_site(recipe, settings)
        self._sites[key] = site
        while len(self._sites) > self.limit:
            del self._sites[next(iter(self._sites))]
        return site


OPEN_SITES = OpenSites()


def open_site(recipe: Recipe, settings: SiteSettings, run: str | None = None) -> Site:
    """Return the site of a recipe's client with its data.

    Args:
        recipe: The recipe.
        settings: The node config.
        run: The run's name; a worker that stays opens the data of a run once.

    Raises:
        DataError: the data cannot be used.
        RecipeError: the method is not defined for this data, or the site does not allow the code
            that the recipe names.
        RunError: the recipe's partition has no client of this number.
    """
    if run is None:
        return _open_site(recipe, settings)
    return OPEN_SITES.open(recipe, settings, run)


def _open_site(recipe: Recipe, settings: SiteSettings) -> Site:
    if settings.data is not None:
        recipe = _with_data(recipe, path=settings.data)
    if settings.public is not None and recipe.data.public is not None:
        public = recipe.data.public.model_copy(update={"path": settings.public})
        recipe = _with_data(recipe, public=public)
    check_named_code(recipe, settings.allowed_code)
    data = open_client_data(recipe, settings)
    method = method_of(recipe, settings.allowed_code)
    return Site(settings.client, recipe, method, data, settings.allowed_code)


def _with_data(recipe: Recipe, **changes: object) -> Recipe:
    """Return a recipe with other values in its data section."""
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=changes)})


def outline_of(dataset: Dataset) -> Outline:
    """Return what a network must know of a data set."""
    shape = tuple(int(length) for length in dataset.train.inputs.shape[1:])
    return Outline(
        dataset.name,
        dataset.task,
        dataset.classes,
        dataset.channels,
        VERSIONS,
        shape,
        str(dataset.train.inputs.dtype),
        dataset.mean,
        dataset.std,
        public_digest(dataset.public),
    )


def dataset_of(outline: Outline) -> Dataset:
    """Return a data set of this form without any example, for a server that has no data."""
    shape = outline.shape or (outline.channels, 1, 1)
    nothing = Examples(np.empty((0, *shape), outline.dtype or "float32"), np.empty(0))
    return Dataset(
        name=outline.data,
        task=outline.task,
        classes=outline.classes,
        train=nothing,
        test=replace(nothing),
        mean=outline.mean or (),
        std=outline.std or (),
    )


_RUN_NAME = re.compile(r"[A-Za-z0-9_+=-][\w.+=-]{0,150}")
_KEY = re.compile(r"state-(\d+)-(\d+)")


@dataclass(frozen=True)
class ClientStateRecords:
    """Records in the node's state, which Flower keeps as long as the run and the node last.

    It is empty at the start of every Flower run, so only a folder survives a restart of the run.
    """

    records: RecordDict

    def load(self, client: int, number: int) -> ClientState:
        """Return the state that a client stored in this round."""
        record = self.records.get(_key(client, number))
        if not isinstance(record, ArrayRecord):
            raise RunError(f"the node holds no state of round {number}")
        arrays = read_arrays(record)
        return unflatten_client_state({name: torch.from_numpy(a) for name, a in arrays.items()})

    def save(self, client: int, number: int, state: ClientState) -> None:
        """Store a client's state after this round."""
        tensors = flatten_client_state(state)
        arrays = {name: Array(tensor.numpy()) for name, tensor in tensors.items()}
        self.records[_key(client, number)] = ArrayRecord(arrays)

    def keep_only(self, client: int, rounds: Collection[int]) -> None:
        """Delete a client's states of all other rounds."""
        for key in list(self.records):
            found = _KEY.fullmatch(key)
            if found and int(found[1]) == client and int(found[2]) not in rounds:
                del self.records[key]


def open_client_state(folder: Path | None, run: str, records: RecordDict) -> ClientStateStore:
    """Return where a site keeps its client's state of a run.

    Args:
        folder: the site's state folder; without one, Flower's node state is used.
        run: the run's name, given by the server.
        records: Flower's node state.
    """
    if folder is None:
        return ClientStateRecords(records)
    path = run_folder(folder, run)
    remove_leftovers(path)
    return ClientStateFiles(path)


def run_folder(folder: Path, run: str) -> Path:
    """Return the folder of a run in a site's state folder; it is created if necessary."""
    if not _RUN_NAME.fullmatch(run):
        raise RunError(f"the run's name {quote(run, 60)} is not valid as the name of a folder")
    path = folder / run
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"the site's state folder cannot be written: {error.strerror}") from error
    return path


def _key(client: int, number: int) -> str:
    return f"state-{client}-{number}"
