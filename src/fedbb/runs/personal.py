"""Personalization of a finished run: the shared model, adapted to a client, and one of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from fedbb._util.files import finite_or_none
from fedbb._util.plugins import AllowedCode
from fedbb.data.dataset import Dataset
from fedbb.data.public import with_public
from fedbb.errors import RecipeError, RunError
from fedbb.evaluation.metrics import Scorer, Scores, own_accuracy, score_logits
from fedbb.evaluation.sites import SUMMED
from fedbb.methods import Method, fedavg
from fedbb.models.base import classifier_name, classifier_parameters
from fedbb.models.registry import MODELS, ModelSource
from fedbb.partition.partition import Partition
from fedbb.partition.registry import Rule
from fedbb.penalties.personal_head import PersonalHead
from fedbb.penalties.proximal import Proximal
from fedbb.personal import KeptEntries, Part, Personal, TrainedPart
from fedbb.recipes.check import method_of
from fedbb.recipes.spec import PythonRecipe, Recipe
from fedbb.records import FloatArray, ModelState, Task
from fedbb.rounds.server_steps import ServerSteps
from fedbb.runs.checkpoint import Checkpoint, ClientStateFiles, load_checkpoint
from fedbb.runs.federation import OWN_TEST, Federation, prepare
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import is_same_partition, read_federation, read_run_recipe
from fedbb.runs.own_models import OwnModels, ScoreModel
from fedbb.runs.python_recipe import divide_data, fingerprints, make_networks
from fedbb.runs.runtime import choose_workers, local_config_of, network_of, networks_of
from fedbb.simulation.inline import Engine, Inline
from fedbb.simulation.pool import process_start as process_start
from fedbb.simulation.pool.pool import Pool
from fedbb.state import find_mismatch, snapshot
from fedbb.training.checks import check_personal
from fedbb.training.config import CONSTANT, LocalConfig, TrainJob, check_optimizer
from fedbb.training.local import NO_MODEL
from fedbb.training.threads import threads

TOGETHER = 16
"""Clients whose models are held at once."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ClientAccuracies:
    """Accuracies of several models for a client; NaN if undefined.

    They are of the client's own test data if it keeps some (`data.own_test`), else of the common
    test data with the client's label mix.

    Attributes:
        client: Its number.
        samples: Size of its training data.
        classes: Number of classes it has.
        shared: Of the run's final model; None if it has none for all clients.
        adapted: Of that model, or else of the client's own, after some more epochs on the client's
            data.
        alone: Of a model trained on the client's data only, from the run's start and for as many
            epochs as its rounds have in all; None unless asked for.
        ceiling: Of the final model of another run; None unless asked for.
        personal: Of the model that the method leaves with the client, which it kept from the last
            round it took part in (Ditto, FedPer, pFedLA), or of the shared model with the client's
            own head (Fed-ROD); None if the method has neither.
        fused: Of the client's and the shared model together; None unless the method defines it
            (RIPFL).
        tested: Size of the client's own test data; None if accuracies are by label mix.
    """

    client: int
    samples: int
    classes: int
    shared: float | None
    adapted: float
    alone: float | None = None
    ceiling: float | None = None
    personal: float | None = None
    tested: int | None = None
    fused: float | None = None

    def as_json(self) -> dict[str, float | None]:
        """Return plain numbers, with None for NaN."""
        values: dict[str, float | None] = finite_or_none(self)
        return values


def personalize(
    path: str | PathLike[str],
    data: Dataset | None = None,
    clients: Partition | Rule | None = None,
    model: ModelSource | Sequence[ModelSource] | None = None,
    method: Method | None = None,
    *,
    public: Dataset | npt.NDArray[Any] | None = None,
    epochs: int = 1,
    train: Part = "all",
    lam: float = 0.0,
    metric: str = "accuracy",
    alone: bool = False,
    ceiling: str | PathLike[str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    allow_code: AllowedCode = False,
) -> list[ClientAccuracies]:
    """Return how well a finished run fits each of its clients.

    Clients train by the plain loss and otherwise as in the run, whatever its method was: what is
    compared is the model they begin with.

    Args:
        path: Folder of the run.
        data: The data of a run that was made by `simulate`.
        clients: The partition of such a run.
        model: The network of such a run, as it was given there; not needed for built-in ones.
        method: The method of such a run, if it was no name and has personal heads or a projection.
        public: The public inputs of such a run, if it had some.
        epochs: Epochs that a client trains the final model for.
        train: Which part of it is trained then: "all", "head", "batch-norms" or "norms".
        lam: Strength of the pull towards the final model in that training.
        metric: Macro metric; another one than "accuracy" needs the clients' own test data.
        alone: Whether clients also train on their own from the start.
        ceiling: Folder of another finished run on the same classes, such as a central one; with the
            same network if clients keep test data of their own.
        workers: Number of worker processes; follows the cores if None.
        progress: Called with the number of trainings done and of all.
        allow_code: Whether model.name may be "package.module:function", which runs that code.

    Returns:
        One record for each client, in their order.

    Raises:
        RunError: The run is unfinished, private, central, or multi-label without test data of its
            clients; its data or network changed, or is missing for a run from Python.
        RecipeError: Code that the recipe names may not run, or an option is not allowed.
    """
    folder = RunFolder(Path(path))
    recipe, last = _finished(folder)
    final, number = last.state, choose_workers(recipe, workers)
    if number:
        process_start.prepare()
    with threads(recipe.local.threads):
        if isinstance(recipe, PythonRecipe):
            if data is not None and public is not None:
                data = with_public(data, public)
            run = _from_python(folder, recipe, data, clients, model, method)
        elif all(part is None for part in (data, clients, model, method, public)):
            run = _from_recipe(folder, recipe, allow_code)
        else:
            raise RunError(f"{path} is a run of a recipe, which names its data and network")
        measure, adapt = _Measure(run.federation, metric), _adapting(train, lam)
        count = _Counter((1 + alone) * measure.clients, progress)
        # At the full learning rate: the rounds that a schedule refers to are over.
        adapting = replace(local_config_of(recipe), epochs=epochs, schedule=CONSTANT)
        # Their own rounds of random numbers: after the run's last, and before its first.
        with _open(recipe, run, measure, adapting, number, adapt) as trainer:
            if (name := find_mismatch(trainer.first, final)) is not None:
                raise RunError(f"{path}: the final model differs from the network in {name!r}")
            found: dict[str, list[float]] = {}
            if run.method.shares_model:
                found["shared"] = measure.of_all(trainer.score(final, 0))
            if ceiling is not None:
                found["ceiling"] = measure.of_all(_ceiling(Path(ceiling), measure, trainer))
            own = _own_models(folder, run.method, last, trainer, measure.clients)
            found |= _score_own(own, final, trainer)
            starts: Callable[[int], ModelState] = lambda client: final  # noqa: E731
            if own is not None and not run.method.shares_model:
                starts = own.state
            found["adapted"] = trainer.train(starts, recipe.rounds.number + 1, recipe.seed, count)
        if alone:
            whole = replace(adapting, epochs=last.round * recipe.local.epochs)
            with _open(recipe, run, measure, whole, number, fedavg()) as trainer:
                found["alone"] = trainer.train(trainer.start, 0, recipe.seed, count)
    return _by_client(run.federation, measure, found)


def _by_client(
    federation: Federation, measure: _Measure, found: Mapping[str, Sequence[float]]
) -> list[ClientAccuracies]:
    """Return the accuracies of each client, given those of all clients by column."""
    return [
        ClientAccuracies(
            client=client,
            samples=len(federation.partition.clients[client]),
            classes=int((measure.cases[client] > 0).sum()),
            tested=measure.tested(client),
            shared=found["shared"][client] if "shared" in found else None,
            **{name: values[client] for name, values in found.items() if name != "shared"},
        )
        for client in range(measure.clients)
    ]


@dataclass(frozen=True, eq=False)
class _Run:
    """A finished run: its method, its data, and its first networks on a device.

    There is one network, or as many as clients take in turn.
    """

    method: Method
    federation: Federation
    networks: Callable[[str | None], tuple[nn.Module, ...]]
    by_client: bool = False


def _from_recipe(folder: RunFolder, recipe: Recipe, allow_code: AllowedCode) -> _Run:
    federation, method = prepare(recipe), method_of(recipe)
    if not is_same_partition(folder, federation.partition):
        raise RunError(f"{folder.path}: the recipe now divides the data in another way")

    def networks(device: str | None) -> tuple[nn.Module, ...]:
        data = federation.dataset
        found = networks_of(recipe, method, data, device=device, allow_code=allow_code)
        return found or (network_of(recipe, method, data, device=device, allow_code=allow_code),)

    return _Run(method, federation, networks, bool(recipe.model.by_client))


def _from_python(
    folder: RunFolder,
    recipe: PythonRecipe,
    data: Dataset | None,
    clients: Partition | Rule | None,
    model: ModelSource | Sequence[ModelSource] | None,
    method: Method | None,
) -> _Run:
    """Return the run of these parts, if they are those that it was made of."""
    named = [one.name for one in recipe.model.networks]
    if model is None and all(name in MODELS for name in named):
        model = named if recipe.model.by_client else named[0]
    if data is None or clients is None or model is None:
        raise RunError(
            f"{folder.path} was made from Python, where alone its data and network are known: "
            "fedbb.personalize(path, data, clients, model)"
        )
    if method is None:
        # Options that only describe a `Method` of the user's make no method.
        method = fedavg() if recipe.method.options else method_of(recipe)
    federation = divide_data(data, clients, recipe.data, recipe.seed)
    local = replace(local_config_of(recipe), device="cpu")
    networks = make_networks(model, method, data, local, recipe.seed)
    found, kept = fingerprints(federation, *networks), recipe.python.model_dump()
    for part in ("partition", "data", "weights"):
        if found[part] != kept[part]:
            what = {"weights": "network, or its first weights,"}.get(part, part)
            raise RunError(f"{folder.path}: this is not the {what} of the run")

    def place(device: str | None) -> tuple[nn.Module, ...]:
        chosen = local_config_of(recipe).device if device is None else device
        return tuple(deepcopy(network).to(chosen) for network in networks)

    return _Run(method, federation, place, bool(recipe.model.by_client))


class _Measure:
    """How the accuracy of a model is measured for each client.

    On the client's own test data if clients keep some, else by the recalls of the common test data,
    weighted by the client's label mix.
    """

    def __init__(self, federation: Federation, metric: str = "accuracy") -> None:
        self.metric, self.task = metric, federation.dataset.task
        if metric not in SUMMED:
            raise RecipeError(f"metric {metric!r} is unknown; allowed: {', '.join(SUMMED)}")
        if metric != "accuracy" and federation.own_test is None:
            raise RecipeError(
                f"{metric} needs data.own_test: on a client's own mixture of labels only accuracy "
                "is defined"
            )
        self.cases = [client.counts.positive for client in federation.clients]
        self.scored = {"test": federation.scored["test"]}
        self.own = federation.own_test is not None
        self.classes = federation.dataset.classes
        if federation.own_test is not None:
            examples, owners = federation.own_test.examples, federation.own_test.owners
            self.scored = {
                f"{OWN_TEST} {client}": examples.take(np.flatnonzero(owners == client))
                for client in np.unique(owners).tolist()
            }
        elif federation.dataset.task is Task.MULTILABEL:
            raise RunError(
                "the run is multi-label: a client's own mixture of labels is defined for "
                "multi-class data only; with data.own_test clients keep test data of their own"
            )

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.cases)

    def __call__(self, scores: Mapping[str, Scores], client: int) -> float:
        """Return the accuracy of scored outputs for a client."""
        if not self.own:
            return own_accuracy(scores["test"].per_class["recall"], self.cases[client])
        found = scores.get(f"{OWN_TEST} {client}")
        return math.nan if found is None else found.macro[self.metric]

    def of_all(self, scores: Mapping[str, Scores]) -> list[float]:
        """Return the accuracy of scored outputs for each client."""
        return [self(scores, client) for client in range(self.clients)]

    def tested(self, client: int) -> int | None:
        """Return the size of a client's own test data; None if accuracies are by label mix."""
        return len(self.scored.get(f"{OWN_TEST} {client}", ())) if self.own else None


@dataclass(frozen=True, eq=False)
class _OwnModel:
    """The model of each client that a method leaves with it, and how it is joined with another."""

    state: Callable[[int], ModelState]
    fuse: Callable[[int, FloatArray, FloatArray], FloatArray | None]
    clients: int


def _own_models(
    folder: RunFolder, method: Method, final: Checkpoint, trainer: _Trainer, clients: int
) -> _OwnModel | None:
    """Return the models that clients have of their own; None if the method leaves them none."""
    last = folder.latest() or final
    heads = [p for p in method.penalties if isinstance(p, PersonalHead)]
    steps, personal = ServerSteps(method.server), method.personal or Personal()
    rounds, store = last.state_rounds, folder.client_states
    models = OwnModels(clients, trainer.first, store, rounds, personal, steps, trainer.firsts)
    if method.personal is not None or not method.shares_model:
        return _OwnModel(
            lambda client: models.model(client, final.state, last.server),
            lambda client, own, shared: personal.fuse(own, shared, models.kept(client)),
            clients,
        )
    if not heads:
        return None
    names = classifier_parameters(str(trainer.classifier))

    def with_head(client: int) -> ModelState:
        # Personal logits are shared ones plus those of the client's head, so they are those of one
        # classifier, the sum of both. A client that never trained has the shared model.
        if client not in rounds:
            return final.state
        kept, params = store.load(client, rounds[client]).tensors, final.state.params
        own = [kept[f"{heads[0].needs.keeps}.{part}"] for part in ("weight", "bias")]
        sums = {name: params[name] + part for name, part in zip(names, own, strict=True)}
        return ModelState({**params, **sums}, final.state.buffers)

    return _OwnModel(with_head, lambda client, own, shared: None, clients)


def _score_own(
    own: _OwnModel | None, final: ModelState, trainer: _Trainer
) -> dict[str, list[float]]:
    """Return the accuracies of the clients' own models, and of those fused with the shared one."""
    if own is None:
        return {}
    found: dict[str, list[float]] = {"personal": []}
    shared = {} if trainer.firsts else trainer.outputs(final, None, 0)
    for client in range(own.clients):
        outputs = trainer.outputs(own.state(client), None, trainer.network(client))
        found["personal"].append(trainer.measure(trainer.scored(outputs), client))
        if not shared:
            continue
        fused = {name: own.fuse(client, logits, shared[name]) for name, logits in outputs.items()}
        both = {name: logits for name, logits in fused.items() if logits is not None}
        if both:
            column = found.setdefault("fused", [])
            column.append(trainer.measure(trainer.scored(both), client))
    return found


def _adapting(train: Part, lam: float) -> Method:
    """Return the method by which clients adapt a model: the plain loss, on a part of it."""
    try:
        part = None if train == "all" else TrainedPart(KeptEntries(train).part)
        pull = (Proximal(lam),) if lam else ()
    except ValueError as error:
        raise RecipeError(f"personalize: {error}") from error
    return Method("FedAvg", penalties=pull, personal=part) if part or pull else fedavg()


def _finished(folder: RunFolder) -> tuple[Recipe, Checkpoint]:
    recipe = read_run_recipe(folder)
    if recipe.privacy != "none":
        raise RunError(
            f"{folder.path} is private: nobody may see how its model performs for a single client"
        )
    if recipe.engine == "central":
        raise RunError(f"{folder.path} was trained in one place and has no clients")
    final = folder.file("final.safetensors")
    if not final.exists():
        raise RunError(
            f"{folder.path} is unfinished; continue with: fedbb run --resume {folder.path}"
        )
    return recipe, load_checkpoint(final)


def _ceiling(path: Path, measure: _Measure, trainer: _Trainer) -> Mapping[str, Scores]:
    """Return the scores of a finished run's last round."""
    folder = RunFolder(path)
    if not folder.file("summary.json").exists():
        raise RunError(f"{path} holds no finished run")
    if read_federation(folder).classes != measure.classes:
        raise RunError(f"{path} has other classes")
    if measure.own:
        final = load_checkpoint(folder.file("final.safetensors")).state
        if find_mismatch(trainer.first, final) is not None:
            raise RunError(
                f"{path} has another network; on the clients' own test data only a model of the "
                "same network can be scored"
            )
        return trainer.score(final, 0)
    try:
        scores = Scores.from_json(folder.read_json("summary.json")["final"]["scores"]["test"])
        recall = scores.per_class["recall"]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RunError(f"{folder.file('summary.json')} is damaged: {error!r}") from error
    if len(recall) != len(measure.classes):
        raise RunError(
            f"{path}: summary.json scores {len(recall)} of {len(measure.classes)} classes"
        )
    return {"test": scores}


@dataclass
class _Counter:
    """Counts trainings and reports the progress."""

    whole: int
    progress: Progress | None
    done: int = 0

    def __call__(self) -> None:
        self.done += 1
        if self.progress:
            self.progress(self.done, self.whole)


@dataclass(frozen=True, eq=False)
class _Trainer:
    """Trains clients from a state, and scores the result."""

    engine: Engine
    score: ScoreModel
    outputs: Callable[[ModelState, None, int], Mapping[str, FloatArray]]
    measure: _Measure
    first: ModelState
    firsts: tuple[ModelState, ...]
    classifier: str | None

    def network(self, client: int) -> int:
        """Return the number of a client's network."""
        return client % len(self.firsts) if self.firsts else 0

    def start(self, client: int) -> ModelState:
        """Return the model that a client began with."""
        return self.firsts[self.network(client)] if self.firsts else self.first

    def scored(self, outputs: Mapping[str, FloatArray]) -> dict[str, Scores]:
        """Return the scores of logits by the name of the examples."""
        return {
            name: score_logits(logits, self.measure.scored[name].labels, self.measure.task)
            for name, logits in outputs.items()
        }

    def train(
        self,
        state: Callable[[int], ModelState],
        number: int,
        seed: int,
        count: Callable[[], None],
    ) -> list[float]:
        """Return the accuracy of each client's state after its training, in client order."""
        found = []
        clients = range(self.measure.clients)
        for start in range(0, len(clients), TOGETHER):
            chosen = clients[start : start + TOGETHER]
            jobs = [TrainJob(client, number, seed, state(client)) for client in chosen]
            for update in list(self.engine.train(jobs)):
                scores = self.score(update.state, self.network(update.client))
                found.append(self.measure(scores, update.client))
                count()
        return found


@contextmanager
def _open(
    recipe: Recipe,
    run: _Run,
    measure: _Measure,
    local: LocalConfig,
    workers: int,
    method: Method,
) -> Iterator[_Trainer]:
    # The run's method decides what the network has; its loss plays no part.
    networks, clients = run.networks("cpu" if workers else None), run.federation.clients
    model, others = networks[0], networks if run.by_client else ()
    check_optimizer(method, local)
    for network in networks:
        check_personal(method, network)
    scored, batch = measure.scored, recipe.evaluation.batch_size
    with TemporaryDirectory() as folder:
        store = ClientStateFiles(Path(folder))
        engine = Inline(model, clients, method, local, store, by_client=others)
        first = NO_MODEL if others else snapshot(model)
        known = measure, first, engine.firsts, classifier_name(model)
        if not workers:
            data = run.federation.dataset
            scorer = Scorer(model, data, scored, batch, local.device, others)
            yield _Trainer(engine, scorer, scorer.outputs, *known)
            return
        with Pool(engine, scored, batch_size=batch, workers=workers) as pool:
            yield _Trainer(pool, pool, pool.outputs, *known)
