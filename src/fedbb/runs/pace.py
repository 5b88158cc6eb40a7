"""How fast this machine trains and scores a recipe, from a second of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from fedbb.evaluation.evaluator import Scorer
from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.recipes.check import check_recipe, check_task
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientState
from fedbb.runs.federation import Federation
from fedbb.runs.network import make_network
from fedbb.state import snapshot
from fedbb.training.client_dataset import ClientDataset
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import train_client
from fedbb.training.threads import threads

FIRST, MOST = 4, 256
"""Images that the first try takes, and the most that are measured."""

LONG_ENOUGH = 0.5
"""Seconds of work after which a measurement is believed."""


@dataclass(frozen=True)
class Pace:
    """Seconds for an image that is trained on, and for one that is scored."""

    train: float
    score: float


def measure_pace(recipe: Recipe, federation: Federation) -> Pace:
    """Train and score for about a second as the recipe says, on some of its own images."""
    method = check_recipe(recipe)
    dataset, plan = federation.dataset, _plan(recipe)
    check_task(method, dataset.task)
    wanted = recipe.model.projection
    projection = method.needs.projection if wanted is None else wanted
    with threads(plan.threads):
        network = make_network(
            recipe.model.name, dataset, plan, seed=recipe.seed, projection=projection
        )
        train = _per_image(_training(network, federation, method, plan), len(dataset.train))
        score = _per_image(_scoring(network, federation, recipe), _longest(federation))
    return Pace(train, score)


def _per_image(work: Callable[[int], None], most: int) -> float:
    """Return seconds per image, from more and more images until the work takes long enough."""
    images = min(FIRST, most)
    work(images)  # what is only slow the first time is not counted
    while True:
        began = time.perf_counter()
        work(images)
        taken = time.perf_counter() - began
        if taken >= LONG_ENOUGH or images >= min(MOST, most):
            return taken / images
        images = min(4 * images, MOST, most)


def _training(
    network: NetworkModule, federation: Federation, method: Method, plan: LocalConfig
) -> Callable[[int], None]:
    start = snapshot(network)
    dataset = federation.dataset

    def train(images: int) -> None:
        # With a memory, so that a method that contrasts with one does so here too.
        share = ClientDataset(dataset, _spread(len(dataset.train), images))
        train_client(network, share, TrainJob(0, 1, 0, start), method, plan, ClientState(start))

    return train


def _scoring(
    network: NetworkModule, federation: Federation, recipe: Recipe
) -> Callable[[int], None]:
    scorer = Scorer(
        network, federation.dataset, {}, recipe.evaluation.batch_size, recipe.local.device
    )
    examples = max(federation.scored.values(), key=len)

    def score(images: int) -> None:
        scorer.predict(examples, 0, images)

    return score


def _spread(among: int, wanted: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return places spread evenly, so that no class is left out for standing last."""
    return np.linspace(0, among - 1, wanted).astype(np.int64)


def _longest(federation: Federation) -> int:
    return max(len(examples) for examples in federation.scored.values())


def _plan(recipe: Recipe) -> LocalConfig:
    known = {field.name for field in fields(LocalConfig)}
    values = {key: value for key, value in recipe.local.model_dump().items() if key in known}
    # A step of ordinary length could end in numbers that are not finite; its time is the same.
    return replace(LocalConfig(**values), epochs=1, lr=1e-6)
