"""What runs cost on this machine: the rest of a grid, from its rounds so far or a measurement."""

from __future__ import annotations

import heapq
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import nn

from fedbb._util.plugins import AllowedCode
from fedbb.data.dataset import Dataset, Examples
from fedbb.errors import FedbbError
from fedbb.evaluation.metrics import Scorer
from fedbb.methods import Method
from fedbb.recipes.check import check_data, check_named_code, check_recipe, method_of
from fedbb.recipes.grid import Cell, Grid
from fedbb.recipes.spec import ModelSpec, Recipe
from fedbb.records import ClientState, Task
from fedbb.rng import stream
from fedbb.rounds.loop import chosen_number
from fedbb.rounds.server_steps import open_server_steps
from fedbb.runs.federation import Federation, prepare
from fedbb.runs.runtime import make_network
from fedbb.runs.scheduler import ENDINGS, EventKind, RunEvent
from fedbb.runs.sweep import CellStatus, State, statuses
from fedbb.simulation.inline import Inline
from fedbb.state import snapshot
from fedbb.training.checks import check_device, check_network
from fedbb.training.config import CONSTANT, LocalConfig, TrainJob
from fedbb.training.local import ClientDataset, train_client
from fedbb.training.threads import threads

FIRST, MOST = 4, 256
"""Images that the first try takes, and the most that are measured."""

LONG_ENOUGH = 0.5
"""Seconds of work after which a measurement is believed."""

TIMED_SETTINGS = (
    "batch_size",
    "nesterov",
    "drop_last",
    "augment",
    "threads",
    "channels_last",
    "device",
    "optimizer",
    "clip",
    "accumulate",
    "precision",
)
"""Settings of local training on which the time of an image depends."""

Progress = Callable[[int, int], None]
"""Called with the number of measurements done and of all."""


@dataclass(frozen=True)
class Estimate:
    """What unfinished cells still ask for, by name: seconds of a round, and rounds left at most.

    `unknown` says why some have no seconds. `at_most` says that some cells may stop early, after
    fewer rounds.
    """

    per_round: Mapping[str, float]
    left: Mapping[str, int]
    unknown: Mapping[str, str]
    at_most: bool = False

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that each cell still takes by itself."""
        return {name: self.left[name] * taken for name, taken in self.per_round.items()}

    def wall(self, workers: int) -> float:
        """Return the seconds until all are finished, this many at a time, the longest first."""
        return wall_time(self.seconds.values(), workers)


def estimate(
    grid: Grid, out: Path, progress: Progress | None = None, *, allow_code: AllowedCode = False
) -> Estimate:
    """Return what the unfinished cells of a grid cost on this machine.

    Rounds of a cell, or of one that differs in nothing but seed and length, are the best evidence;
    where there are none, a second of training is measured for each kind of cell.
    """
    found = statuses(grid, out)
    missing = [cell for cell in grid.cells if found[cell.name].state is not State.FINISHED]
    known = _measured_seconds(grid.cells, found)
    wanted = {kind_of(cell.recipe): cell.recipe for cell in missing}
    new = {kind: recipe for kind, recipe in wanted.items() if kind not in known}
    measured, unknown = _measure(new, progress, allow_code)
    known |= measured
    kinds = {cell.name: kind_of(cell.recipe) for cell in missing}
    return Estimate(
        per_round={name: known[kind] for name, kind in kinds.items() if kind in known},
        left={name: found[name].of - found[name].rounds for name in kinds},
        unknown={name: unknown[kind] for name, kind in kinds.items() if kind in unknown},
        at_most=any(cell.recipe.rounds.stops_early for cell in missing),
    )


def _measured_seconds(cells: Sequence[Cell], found: Mapping[str, CellStatus]) -> dict[str, float]:
    """Return the mean seconds of a round for every kind of cell that has some behind it."""
    rounds: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for cell in cells:
        status, kind = found[cell.name], kind_of(cell.recipe)
        if status.rounds:
            rounds[kind] = rounds.get(kind, 0) + status.rounds
            seconds[kind] = seconds.get(kind, 0.0) + status.seconds
    return {kind: seconds[kind] / number for kind, number in rounds.items()}


def _measure(
    recipes: Mapping[str, Recipe], progress: Progress | None, allow_code: AllowedCode
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the seconds of a round for each kind of recipe, and why some cannot be measured."""
    measured: dict[str, float] = {}
    unknown: dict[str, str] = {}
    meter = Meter(allow_code)
    # Recipes with the same images come after each other, for only one data set is kept loaded.
    for number, kind in enumerate(sorted(recipes, key=lambda kind: data_of(recipes[kind]))):
        if progress is not None:
            progress(number, len(recipes))
        try:
            measured[kind] = meter.round_of(recipes[kind])
        except FedbbError as error:
            unknown[kind] = str(error)
    return measured, unknown


def wall_time(seconds: Iterable[float], workers: int) -> float:
    """Return when the last of these pieces of work ends, the longest started first.

    >>> wall_time([5.0, 3.0, 3.0, 1.0], 2)
    6.0
    """
    ends = [0.0] * workers
    for piece in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + piece)
    return max(ends)


def kind_of(recipe: Recipe) -> str:
    """Return what is common to all cells whose rounds take equally long."""
    return recipe.decisive.model_dump_json(
        exclude={"name": True, "seed": True, "rounds": {"number", "patience", "target"}}
    )


def data_of(recipe: Recipe) -> str:
    """Return what is common to recipes that load the same images."""
    return recipe.data.model_dump_json(exclude={"partition"})


class Meter:
    """Measures recipes, and keeps for the next one what it has loaded and measured already."""

    def __init__(self, allow_code: AllowedCode = False) -> None:
        self.allow_code = allow_code
        self.data = ""
        self.federation: Federation | None = None
        self.timed: dict[str, SecondsPerImage] = {}

    def round_of(self, recipe: Recipe) -> float:
        """Return the seconds that a round of this recipe takes."""
        federation = self._load(recipe)
        taken = self._seconds_per_image(recipe, federation)
        images = len(federation.dataset.train) * recipe.rounds.participation * recipe.local.epochs
        scored = sum(len(examples) for examples in federation.scored.values())
        trained, passed = self._public_images(recipe, federation)
        return (images + trained) * taken.train + (scored + passed) * taken.score

    def _public_images(self, recipe: Recipe, federation: Federation) -> tuple[int, int]:
        """Return how many public inputs are trained on, and how many only passed, in a round."""
        public, spec = federation.dataset.public, method_of(recipe, self.allow_code).distillation
        if public is None or spec is None:
            return 0, 0
        clients = chosen_number(len(federation.partition.clients), recipe.rounds.participation)
        if spec.taught == "server":
            return spec.steps_over(len(public)) * spec.batch_size, clients * len(public)
        return clients * spec.epochs * len(public), clients * len(public)

    def _load(self, recipe: Recipe) -> Federation:
        if self.federation is None or self.data != data_of(recipe):
            self.federation = None
            self.federation, self.data = prepare(recipe), data_of(recipe)
        return self.federation

    def _seconds_per_image(self, recipe: Recipe, federation: Federation) -> SecondsPerImage:
        local = {name: getattr(recipe.local, name) for name in TIMED_SETTINGS}
        method = [recipe.method.name, recipe.method.loss]
        parts = [data_of(recipe), recipe.model.model_dump_json(), json.dumps([*method, local])]
        key = " ".join(parts)
        if key not in self.timed:
            self.timed[key] = time_images(recipe, federation, allow_code=self.allow_code)
        return self.timed[key]


class RemainingTime:
    """Remaining time of a grid, from an estimate that finished rounds of the same kind improve.

    Cells of unknown cost count for nothing until one of them has finished a round.
    """

    def __init__(self, grid: Grid, estimate: Estimate, workers: int) -> None:
        self.workers = workers
        self.left = dict(estimate.left)
        self.kinds = {cell.name: kind_of(cell.recipe) for cell in grid.cells}
        self.estimated = {self.kinds[name]: seconds for name, seconds in estimate.per_round.items()}
        self.measured: dict[str, list[float]] = {}

    def handle(self, cell: Cell, event: RunEvent) -> None:
        """Take account of what happened to a cell."""
        if event.kind is EventKind.ROUND:
            self.left[cell.name] = cell.recipe.rounds.number - event.round
            self.measured.setdefault(self.kinds[cell.name], []).append(event.seconds)
        elif event.kind in ENDINGS:
            self.left.pop(cell.name, None)

    def seconds(self) -> float:
        """Return the seconds until all cells are finished."""
        pieces = (rounds * self._round(self.kinds[name]) for name, rounds in self.left.items())
        return wall_time(pieces, self.workers)

    def _round(self, kind: str) -> float:
        measured = self.measured.get(kind)
        return sum(measured) / len(measured) if measured else self.estimated.get(kind, 0.0)


@dataclass(frozen=True)
class SecondsPerImage:
    """Seconds for an image that is trained on, and for one that is scored."""

    train: float
    score: float


def time_images(
    recipe: Recipe, federation: Federation, *, allow_code: AllowedCode = False
) -> SecondsPerImage:
    """Train and score for about a second as the recipe says, on some of its own images."""
    check_named_code(recipe, allow_code)
    method, dataset = check_recipe(recipe, allow_code=allow_code), federation.dataset
    check_device(recipe.local.device)
    check_data(recipe, method, dataset, None)
    # A step of ordinary length could end in numbers that are not finite; its time is the same.
    local = replace(recipe.local, epochs=1, lr=1e-6, schedule=CONSTANT)
    with threads(local.threads):
        first = recipe.model.networks[0]
        network = make_network(
            first, method, dataset, local, seed=recipe.seed, allow_code=allow_code
        )
        check_network(network, dataset, method)
        train = _per_image(_training(network, dataset, method, local), len(dataset.train))
        score = _per_image(_scoring(network, federation, recipe), _longest(federation))
    return SecondsPerImage(train, score)


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
    network: nn.Module, dataset: Dataset, method: Method, local: LocalConfig
) -> Callable[[int], None]:
    start = snapshot(network)
    dataset = replace(dataset, public=None)  # public inputs are counted apart
    if method.needs.teacher is not None:  # any logits take the same time
        logits = np.zeros((len(dataset.train), len(dataset.classes)), dtype=np.float32)
        dataset = replace(dataset, train=replace(dataset.train, teacher=logits))
    whole = ClientDataset(dataset, np.arange(len(dataset.train)))
    steps = open_server_steps(Inline(network, [whole], method, local), seed=0)
    job = TrainJob(0, 1, 0, start, steps.broadcast(steps.begin(start), 1))

    def train(images: int) -> None:
        # With a client state, so that a method such as MOON does all its work.
        client = ClientDataset(dataset, _spread(len(dataset.train), images))
        train_client(network, client, job, method, local, ClientState(start))

    return train


def _scoring(network: nn.Module, federation: Federation, recipe: Recipe) -> Callable[[int], None]:
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


@dataclass(frozen=True)
class Work:
    """What is timed: one epoch on made-up images, by a network, a few times over."""

    model: str
    classes: int
    image_shape: tuple[int, int, int]
    images: int = 64
    repeats: int = 3


def time_methods(
    methods: Mapping[str, Method], work: Work, *, allow_code: AllowedCode = False
) -> dict[str, float]:
    """Return the median seconds of a client's round by each method, taken in turns."""
    dataset, local, model = _made_up(work), LocalConfig(), ModelSpec(name=work.model)
    client_rounds = {}
    for name, method in methods.items():
        network = make_network(model, method, dataset, local, seed=0, allow_code=allow_code)
        client_rounds[name] = _training(network, dataset, method, local)
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    with threads(local.threads):
        for turn in range(work.repeats + 1):
            for name in _order(list(methods), turn):
                began = time.perf_counter()
                client_rounds[name](work.images)
                taken = time.perf_counter() - began
                if turn > 0:  # the first turn only warms up
                    seconds[name].append(taken)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def _order(names: list[str], turn: int) -> Sequence[str]:
    return names if turn % 2 == 0 else names[::-1]


def _made_up(work: Work) -> Dataset:
    rng = stream(0, "timing")
    images = rng.integers(0, 256, (work.images, *work.image_shape), dtype=np.uint8)
    part = Examples(images, rng.integers(0, work.classes, work.images))
    channels, names = work.image_shape[0], tuple(str(number) for number in range(work.classes))
    middle, spread = (0.5,) * channels, (0.25,) * channels
    return Dataset("made up", Task.MULTICLASS, names, part, part, middle, spread)
