"""A site: one client of a recipe with its own data, which trains and scores on request."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from fedbb.data.dataset import Dataset, Examples
from fedbb.errors import RunError
from fedbb.evaluation.evaluator import Scorer
from fedbb.evaluation.metrics import Scores
from fedbb.flower.app.prepared_data import ClientData, open_client_data
from fedbb.flower.app.serde import VERSIONS, Outline, TrainRequest
from fedbb.flower.app.settings import SiteSettings
from fedbb.methods import Method, build_method
from fedbb.models.registry import check_code
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientInfo, ClientUpdate, ModelState
from fedbb.runs.runtime import local_config_of, network_of
from fedbb.simulation.client_state import ClientStateStore
from fedbb.training.client_dataset import ClientDataset
from fedbb.training.config import LocalConfig
from fedbb.training.local import NO_STATE, train_client


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

    def _network(self) -> nn.Module:
        """Return the recipe's network; the state in each message takes the place of weights."""
        model = self.recipe.model.model_copy(update={"weights": None})
        recipe = self.recipe.model_copy(update={"model": model})
        return network_of(recipe, self.method, self.dataset, allow_code=self.allowed_code)

    def info(self) -> ClientInfo:
        """Return all that this site ever reports about its data."""
        return self.data.info

    def outline(self) -> Outline:
        """Return what must agree with the other sites; the data goes by the recipe's own name."""
        return replace(outline_of(self.dataset), data=self.recipe.data.name)

    def train(self, request: TrainRequest, store: ClientStateStore) -> Trained:
        """Do a job; the client's state is on disk before the reply leaves."""
        job = request.job
        if job.client != self.client:
            raise RunError(f"this site is client {self.client}, and the job is for {job.client}")
        state, lost = NO_STATE, False
        if request.since is not None:
            try:
                state = store.load(self.client, request.since)
            except RunError:
                lost = True
        model = self._network()
        update, kept = train_client(model, self.train_data, job, self.method, self.config, state)
        if kept == NO_STATE:
            return Trained(update, kept=False, lost=lost)
        store.save(self.client, job.round, kept)
        # The server may discard this round's reply and ask again from the state it named.
        store.keep_only(self.client, {job.round, request.since or job.round})
        return Trained(update, kept=True, lost=lost)

    def score(self, state: ModelState) -> dict[str, Scores]:
        """Return the scores of a model on the examples this site holds back."""
        examples = {name: part for name, part in self.data.scored.items() if len(part)}
        model = self._network()
        batch = self.recipe.evaluation.batch_size
        return Scorer(model, self.dataset, examples, batch, self.config.device)(state)


def open_site(recipe: Recipe, settings: SiteSettings) -> Site:
    """Return the site of a recipe's client with its data.

    Raises:
        DataError: the data cannot be used.
        RecipeError: the method is not defined for this data, or the site does not allow the code
            that the recipe names.
        RunError: the recipe's partition has no client of this number.
    """
    if settings.data is not None:
        own = recipe.data.model_copy(update={"path": settings.data})
        recipe = recipe.model_copy(update={"data": own})
    check_code(recipe.model.name, settings.allowed_code)
    data = open_client_data(recipe, settings)
    method = build_method(recipe.method.name, recipe.method.options)
    return Site(settings.client, recipe, method, data, settings.allowed_code)


def outline_of(dataset: Dataset) -> Outline:
    """Return what a network must know of a data set."""
    shape = tuple(int(length) for length in dataset.train.inputs.shape[1:])
    return Outline(dataset.name, dataset.task, dataset.classes, dataset.channels, VERSIONS, shape)


def dataset_of(outline: Outline) -> Dataset:
    """Return a data set of this form without any example, for a server that has no data."""
    shape = outline.shape or (outline.channels, 1, 1)
    nothing = Examples(np.empty((0, *shape), np.float32), np.empty(0))
    zeros = (0.0,) * outline.channels
    return Dataset(
        name=outline.data,
        task=outline.task,
        classes=outline.classes,
        train=nothing,
        test=replace(nothing),
        mean=zeros,
        std=tuple(1.0 for _ in zeros),
    )
