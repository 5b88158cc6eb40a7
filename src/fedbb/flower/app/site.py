"""A site: one client of a recipe with its own data, which trains and scores as the others do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

import fedbb
from fedbb.data.dataset import Dataset, Examples
from fedbb.errors import RunError
from fedbb.evaluation.evaluator import Scorer
from fedbb.evaluation.metrics import Scores
from fedbb.flower.app.serde import Order, Outline
from fedbb.flower.app.settings import SiteSettings
from fedbb.methods import Method
from fedbb.partition.registry import Rule
from fedbb.recipes.check import check_data, check_recipe
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientInfo, ClientUpdate, ModelState
from fedbb.runs.federation import Federation, prepare
from fedbb.runs.runtime import local_config_of, network_of
from fedbb.simulation.client_state import ClientStateStore
from fedbb.training.client_dataset import ClientDataset
from fedbb.training.config import LocalConfig
from fedbb.training.local import NO_STATE, train_client

VERSIONS = f"fedbb {fedbb.__version__}, torch {torch.__version__}"


@dataclass(frozen=True)
class Trained:
    """An update, whether the site remembers something of it, and whether it had forgotten."""

    update: ClientUpdate
    kept: bool
    forgot: bool


@dataclass(frozen=True, eq=False)
class Site:
    """A client's data with the recipe it follows."""

    client: int
    recipe: Recipe
    method: Method
    federation: Federation
    share: ClientDataset

    @property
    def dataset(self) -> Dataset:
        """The data set that the share is a part of."""
        return self.federation.dataset

    @property
    def plan(self) -> LocalConfig:
        """How the recipe has its clients train."""
        return local_config_of(self.recipe)

    def info(self) -> ClientInfo:
        """Return all that this site ever tells of its data."""
        counts = self.share.counts
        return ClientInfo(self.client, counts.samples, self.method.weighting.measure(counts))

    def outline(self) -> Outline:
        """Return what must agree with the other sites; the data goes by the recipe's own name."""
        return replace(outline_of(self.dataset), data=self.recipe.data.name)

    def train(self, order: Order, memory: ClientStateStore) -> Trained:
        """Do a job; the memory is written before the answer leaves."""
        job = order.job
        if job.client != self.client:
            raise RunError(f"this site is client {self.client}, and the job is for {job.client}")
        remembered, forgot = NO_STATE, False
        if order.since is not None:
            try:
                remembered = memory.load(self.client, order.since)
            except RunError:
                forgot = True
        model = network_of(self.recipe, self.method, self.dataset)
        update, kept = train_client(model, self.share, job, self.method, self.plan, remembered)
        if kept == NO_STATE:
            return Trained(update, kept=False, forgot=forgot)
        memory.save(self.client, job.round, kept)
        # The server may yet drop this round's answer and ask again from the memory it named.
        memory.keep_only(self.client, {job.round, order.since or job.round})
        return Trained(update, kept=True, forgot=forgot)

    def score(self, state: ModelState) -> dict[str, Scores]:
        """Return the scores of a state on the examples this site holds back."""
        examples = {name: part for name, part in self.federation.scored.items() if len(part)}
        model = network_of(self.recipe, self.method, self.dataset)
        batch = self.recipe.evaluation.batch_size
        return Scorer(model, self.dataset, examples, batch, self.plan.device)(state)


def open_site(recipe: Recipe, settings: SiteSettings) -> Site:
    """Load a site's data and take its part."""
    method = check_recipe(recipe)
    if settings.data is not None:
        data = recipe.data.model_copy(update={"path": settings.data})
        recipe = recipe.model_copy(update={"data": data})
    federation = prepare(_undivided(recipe) if settings.whole else recipe)
    check_data(recipe, method, federation.dataset, None)
    parts = federation.partition.clients
    place = 0 if settings.whole else settings.client
    if place >= len(parts):
        raise RunError(
            f"this site is client {settings.client}, and the recipe divides the data among "
            f"{len(parts)}; if all of its data is its own, set whole=true in the node config"
        )
    share = ClientDataset(federation.dataset, parts[place])
    return Site(settings.client, recipe, method, federation, share)


def outline_of(dataset: Dataset) -> Outline:
    """Return what a network must know of a data set."""
    return Outline(dataset.name, dataset.task, dataset.classes, dataset.channels, VERSIONS)


def dataset_of(outline: Outline) -> Dataset:
    """Return a data set of this form without any example, for a server that has no data."""
    nothing = Examples(np.empty((0, outline.channels, 1, 1), np.float32), np.empty(0))
    whole = (0.0,) * outline.channels
    return Dataset(
        name=outline.data,
        task=outline.task,
        classes=outline.classes,
        train=nothing,
        test=replace(nothing),
        mean=whole,
        std=tuple(1.0 for _ in whole),
    )


def _undivided(recipe: Recipe) -> Recipe:
    everything = Rule(kind="even", clients=1)
    data = recipe.data.model_copy(update={"partition": everything})
    return recipe.model_copy(update={"data": data})
