"""Personalization of a finished run: the shared model, adapted to a client, and one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fedbb._util.files import finite_or_none
from fedbb._util.plugins import AllowedCode
from fedbb.errors import RunError
from fedbb.evaluation.metrics import Scorer, Scores, own_accuracy
from fedbb.methods import fedavg
from fedbb.models.base import classifier_name, classifier_parameters
from fedbb.penalties.personal_head import PersonalHead
from fedbb.recipes.check import method_of
from fedbb.recipes.spec import PythonRecipe, Recipe
from fedbb.records import FloatArray, ModelState, Task
from fedbb.rounds.loop import Score
from fedbb.runs.checkpoint import Checkpoint, ClientStateFiles, load_checkpoint
from fedbb.runs.federation import Federation, prepare
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import is_same_partition, read_federation, read_run_recipe
from fedbb.runs.runtime import choose_workers, local_config_of, network_of
from fedbb.simulation.inline import Engine, Inline
from fedbb.simulation.pool import process_start as process_start
from fedbb.simulation.pool.pool import Pool
from fedbb.state import find_mismatch, snapshot
from fedbb.training.config import CONSTANT, LocalConfig, TrainJob
from fedbb.training.threads import threads

TOGETHER = 16
"""Clients whose models are held at once."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ClientAccuracies:
    """Accuracies of several models on test data with a client's own label mix; NaN if undefined.

    Attributes:
        client: Its number.
        samples: Size of its training data.
        classes: Number of classes it has.
        shared: Of the run's final model.
        adapted: Of that model after some more epochs on the client's data.
        alone: Of a model trained on the client's data only, from the run's start and for as many
            epochs as its rounds have in all; None unless asked for.
        ceiling: Of the final model of another run; None unless asked for.
        personal: Of the shared model with the client's own head, which it kept from the last round
            it took part in; None if the method has no personal heads (Fed-ROD).
    """

    client: int
    samples: int
    classes: int
    shared: float
    adapted: float
    alone: float | None = None
    ceiling: float | None = None
    personal: float | None = None

    def as_json(self) -> dict[str, float | None]:
        """Return plain numbers, with None for NaN."""
        values: dict[str, float | None] = finite_or_none(self)
        return values


def personalize(
    path: Path,
    *,
    epochs: int = 1,
    alone: bool = False,
    ceiling: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    allow_code: AllowedCode = False,
) -> list[ClientAccuracies]:
    """Return how well a finished run fits each of its clients.

    Clients train by the plain loss and otherwise as in the run, whatever its method was: what is
    compared is the model they begin with.

    Args:
        path: Folder of the run.
        epochs: Epochs that a client trains the final model for.
        alone: Whether clients also train on their own from the start.
        ceiling: Another finished run on the same classes, such as a central one.
        workers: Number of worker processes; follows the cores if None.
        progress: Called with the number of trainings done and of all.
        allow_code: Whether model.name may be "package.module:function", which runs that code.

    Raises:
        RunError: The run is unfinished, private, central or multi-label, was made from Python, or
            its data changed.
        RecipeError: Code that the recipe names may not run.
    """
    folder = RunFolder(path)
    recipe, last = _finished(folder)
    final = last.state
    number = choose_workers(recipe, workers)
    if number:
        process_start.prepare()
    with threads(recipe.local.threads):
        federation = _federation(folder, recipe)
        above = None if ceiling is None else _recall(ceiling, federation.dataset.classes)
        counts = [client.counts.positive for client in federation.clients]
        count = _Counter((1 + alone) * len(counts), progress)
        # At the full learning rate: the rounds that a schedule refers to are over.
        adapting = replace(local_config_of(recipe), epochs=epochs, schedule=CONSTANT)
        # Their own rounds of random numbers: after the run's last, and before its first.
        with _open(recipe, federation, adapting, number, allow_code) as trainer:
            if (name := find_mismatch(trainer.first, final)) is not None:
                raise RunError(f"{path}: the final model differs from the network in {name!r}")
            shared = trainer.recall(final)
            own = [
                trainer.recall(state) if state is not final else shared
                for state in _personal_models(
                    folder, recipe, final, trainer.classifier, len(counts)
                )
            ]
            adapted = list(trainer.train(final, recipe.rounds.number + 1, recipe.seed, count))
        lonely: list[FloatArray] = []
        if alone:
            whole = replace(adapting, epochs=last.round * recipe.local.epochs)
            with _open(recipe, federation, whole, number, allow_code) as trainer:
                lonely = list(trainer.train(trainer.first, 0, recipe.seed, count))
    return [
        ClientAccuracies(
            client=client,
            samples=len(federation.partition.clients[client]),
            classes=int((cases > 0).sum()),
            shared=own_accuracy(shared, cases),
            adapted=own_accuracy(adapted[client], cases),
            alone=own_accuracy(lonely[client], cases) if alone else None,
            ceiling=None if above is None else own_accuracy(above, cases),
            personal=own_accuracy(own[client], cases) if own else None,
        )
        for client, cases in enumerate(counts)
    ]


def _personal_models(
    folder: RunFolder, recipe: Recipe, final: ModelState, classifier: str | None, clients: int
) -> Iterator[ModelState]:
    """Yield the model of each client, if the method has personal heads; else nothing.

    Personal logits are shared ones plus those of the client's head, so they are those of one
    classifier, the sum of both. A client that never trained has the shared model.
    """
    heads = [p for p in method_of(recipe).penalties if isinstance(p, PersonalHead)]
    last = folder.latest() if heads else None
    if last is None:
        return
    names = classifier_parameters(str(classifier))
    for client in range(clients):
        if client not in last.state_rounds:
            yield final
            continue
        kept = folder.client_states.load(client, last.state_rounds[client]).tensors
        own = [kept[f"{heads[0].needs.keeps}.{part}"] for part in ("weight", "bias")]
        sums = {name: final.params[name] + part for name, part in zip(names, own, strict=True)}
        yield ModelState({**final.params, **sums}, final.buffers)


def _finished(folder: RunFolder) -> tuple[Recipe, Checkpoint]:
    recipe = read_run_recipe(folder)
    if isinstance(recipe, PythonRecipe):
        raise RunError(
            f"{folder.path} was made from Python, where alone its data is known; personalization "
            'needs a run of a recipe, which may name a network of your own: model.name = "module:f"'
        )
    if recipe.privacy != "none":
        raise RunError(
            f"{folder.path} is private: nobody may see how its model performs for a single client"
        )
    if recipe.engine == "central":
        raise RunError(f"{folder.path} was trained in one place and has no clients")
    final = folder.file("final.safetensors")
    if not final.exists():
        raise RunError(f"{folder.path} is unfinished; go on with: fedbb run --resume {folder.path}")
    return recipe, load_checkpoint(final)


def _federation(folder: RunFolder, recipe: Recipe) -> Federation:
    """Return the run's data as its clients share it."""
    federation = prepare(recipe)
    if not is_same_partition(folder, federation.partition):
        raise RunError(f"{folder.path}: the recipe now divides the data in another way")
    if federation.dataset.task is Task.MULTILABEL:
        raise RunError(
            f"{folder.path} is multi-label: a client's own mixture of labels is defined for "
            "multi-class data only"
        )
    return federation


def _recall(path: Path, classes: Sequence[str]) -> FloatArray:
    """Return the recall of a finished run's last round on test data, by class."""
    folder = RunFolder(path)
    if not folder.file("summary.json").exists():
        raise RunError(f"{path} holds no finished run")
    if read_federation(folder).classes != tuple(classes):
        raise RunError(f"{path} has other classes")
    try:
        final = folder.read_json("summary.json")["final"]["scores"]["test"]
        recall = Scores.from_json(final).per_class["recall"]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RunError(f"{folder.file('summary.json')} is damaged: {error!r}") from error
    if len(recall) != len(classes):
        raise RunError(f"{path}: summary.json scores {len(recall)} of {len(classes)} classes")
    return recall


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
    score: Score
    first: ModelState
    clients: int
    classifier: str | None

    def recall(self, state: ModelState) -> FloatArray:
        """Return the recall (C,) of a state on test data."""
        return self.score(state)["test"].per_class["recall"]

    def train(
        self, state: ModelState, number: int, seed: int, count: Callable[[], None]
    ) -> Iterator[FloatArray]:
        """Yield the recall of the state after training by each client, in client order."""
        jobs = [TrainJob(client, number, seed, state) for client in range(self.clients)]
        for start in range(0, self.clients, TOGETHER):
            for update in list(self.engine.train(jobs[start : start + TOGETHER])):
                yield self.recall(update.state)
                count()


@contextmanager
def _open(
    recipe: Recipe,
    federation: Federation,
    local: LocalConfig,
    workers: int,
    allow_code: AllowedCode,
) -> Iterator[_Trainer]:
    method = method_of(recipe)  # for what it needs of the network; its loss plays no part
    device = "cpu" if workers else None
    model = network_of(recipe, method, federation.dataset, device=device, allow_code=allow_code)
    first, clients = snapshot(model), len(federation.partition.clients)
    classifier = classifier_name(model)
    scored = {"test": federation.scored["test"]}
    batch = recipe.evaluation.batch_size
    with TemporaryDirectory() as folder:
        engine = Inline(model, federation.clients, fedavg(), local, ClientStateFiles(Path(folder)))
        if not workers:
            scorer = Scorer(model, federation.dataset, scored, batch, local.device)
            yield _Trainer(engine, scorer, first, clients, classifier)
            return
        with Pool(engine, scored, batch_size=batch, workers=workers) as pool:
            yield _Trainer(pool, pool, first, clients, classifier)
