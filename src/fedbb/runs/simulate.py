"""Federations from Python: data, clients, network and method as objects, a result in return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from fedbb._util.plugins import AllowedCode
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.splits import hold_out
from fedbb.errors import RecipeError
from fedbb.methods import Method, build_method
from fedbb.models.base import set_classifier
from fedbb.models.build import ModelSource
from fedbb.partition.partition import Partition
from fedbb.partition.registry import Rule, divide
from fedbb.recipes.check import check_named_code, check_recipe, check_settings
from fedbb.recipes.reader import make_recipe, read_recipe
from fedbb.recipes.spec import Recipe
from fedbb.records import ModelState, Task
from fedbb.rng import stream
from fedbb.rounds.loop import Schedule
from fedbb.rounds.round import RoundPolicy
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.federation import Federation, prepare
from fedbb.runs.folder import Record, RunFolder
from fedbb.runs.python_recipe import (
    describe_method,
    describe_model,
    describe_rule,
    fingerprints,
)
from fedbb.runs.result import Result, RoundRecord, make_result
from fedbb.runs.runner import DEFAULT_METRIC, RunParts, run_parts, stopped_by, summarize
from fedbb.runs.runtime import make_network, network_of
from fedbb.state import restore
from fedbb.training.config import LocalConfig

LOCAL = LocalConfig()
DEFENSE = RoundPolicy()

Progress = Callable[[RoundRecord], None]
Privacy = Literal["none", "masked", "bfv"]


def simulate(
    data: Dataset,
    clients: Partition | Rule,
    *,
    model: ModelSource = "small-cnn",
    method: str | Method = "fedavg",
    local: LocalConfig = LOCAL,
    rounds: int | Schedule = 10,
    seed: int = 0,
    participation: float | None = None,
    validation: float = 0.0,
    validation_by: str | None = None,
    metric: str | None = None,
    defense: RoundPolicy = DEFENSE,
    privacy: Privacy = "none",
    central: bool = False,
    batch_size: int = 256,
    classifier: str | None = None,
    workers: int | None = 0,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Simulate a federation and return its scores and its model.

    Args:
        data: Training and test data.
        clients: Which client has which training examples: a `Partition`, as the functions of
            `fedbb.partition` make it.
        model: The network: a function that returns one, an `nn.Module`, which is copied and keeps
            its weights, or the name of a built-in one.
        method: The algorithm: a name such as "fedbb" or "moon+fedbb", what a function of
            `fedbb.methods` returns, or a `Method` of your own.
        local: Local training of a client.
        rounds: Number of rounds, or a `Schedule` with early stopping.
        seed: Seed of all random streams.
        participation: Share of the clients that train in a round; all by default.
        validation: Share of the training data that is held out to choose the best round; every
            client gives up some of its examples.
        validation_by: Column whose values are held out whole, such as the patient.
        metric: Macro metric by which the best round is chosen; by default balanced accuracy, or
            AUROC for multi-label data.
        defense: Fault tolerance and Byzantine robustness.
        privacy: Secure aggregation, "masked" or "bfv".
        central: Whether one client trains on all data without any federation; its optimizer goes
            on from round to round.
        batch_size: Examples that are scored at once.
        classifier: Name of the module of the network whose input is the embedding, for methods
            such as MOON; the last `nn.Linear` by default.
        workers: Worker processes in which clients train, to the same bits; 0 for none, None for
            one per core. A script that uses them needs `if __name__ == "__main__":`.
        out: Folder that keeps the run, as `fedbb run` does; without it nothing is written.
        resume: Whether an unfinished run in `out` goes on, to the same bits.
        progress: Called after each round.

    Returns:
        The result: `final`, `best`, `history`, `model` and more.

    Raises:
        RecipeError: Arguments contradict each other, or the network does not suit the data.
        DataError: The partition does not divide this data.
        RunError: The folder cannot be used, or holds another run.
    """
    experiment = _experiment(
        data,
        clients,
        model=model,
        method=method,
        local=local,
        rounds=rounds,
        seed=seed,
        participation=participation,
        validation=validation,
        validation_by=validation_by,
        metric=metric,
        defense=defense,
        privacy=privacy,
        central=central,
        batch_size=batch_size,
        classifier=classifier,
        workers=workers,
    )
    return _finish(experiment, None if out is None else Path(out), resume, workers, progress)


def iter_rounds(
    data: Dataset,
    clients: Partition | Rule,
    *,
    model: ModelSource = "small-cnn",
    method: str | Method = "fedavg",
    local: LocalConfig = LOCAL,
    rounds: int | Schedule = 10,
    seed: int = 0,
    participation: float | None = None,
    validation: float = 0.0,
    validation_by: str | None = None,
    metric: str | None = None,
    defense: RoundPolicy = DEFENSE,
    privacy: Privacy = "none",
    central: bool = False,
    batch_size: int = 256,
    classifier: str | None = None,
    workers: int | None = 0,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
) -> Iterator[RoundRecord]:
    """Simulate a federation round by round, for callers that look at each or stop after it.

    The arguments are those of `simulate`. Nothing is trained before the first `next`. A run in a
    folder that the caller leaves early can be resumed.

    Yields:
        Each round; its `state` is the model after it, as a state dict.
    """
    experiment = _experiment(
        data,
        clients,
        model=model,
        method=method,
        local=local,
        rounds=rounds,
        seed=seed,
        participation=participation,
        validation=validation,
        validation_by=validation_by,
        metric=metric,
        defense=defense,
        privacy=privacy,
        central=central,
        batch_size=batch_size,
        classifier=classifier,
        workers=workers,
    )
    path = None if out is None else Path(out)
    for done in run_parts(experiment.recipe, experiment.load, path, resume=resume, workers=workers):
        yield RoundRecord.from_record(done.record, state_dict(done.state))


def run(
    recipe: Recipe | Mapping[str, Any] | str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    resume: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    allow_code: AllowedCode = False,
) -> Result:
    """Run a recipe, as `fedbb run` does.

    Args:
        recipe: A recipe, a table of its settings, or the path of its file.
        out: Folder that keeps the run; without it nothing is written.
        resume: Whether an unfinished run in `out` goes on, to the same bits.
        workers: Worker processes; one per core if None, 0 for none.
        progress: Called after each round.
        allow_code: Whether code that the recipe names as "package.module:function" may run: all,
            or a list of such names.

    Raises:
        RecipeError: The recipe contradicts itself, the data or this machine.
        DataError: The data cannot be read or divided.
        RunError: The folder cannot be used, or holds another run.
    """
    if isinstance(recipe, Mapping):
        recipe = make_recipe(recipe)
    elif not isinstance(recipe, Recipe):
        recipe = read_recipe(Path(recipe))
    chosen = recipe  # of one type, also for the function below
    check_named_code(chosen, allow_code)
    method = check_recipe(chosen, allow_code=allow_code)

    def load(device: str | None) -> RunParts:
        federation = prepare(chosen)
        network = network_of(
            chosen, method, federation.dataset, device=device, allow_code=allow_code
        )
        return RunParts(method, federation, network)

    path = None if out is None else Path(out)
    return _finish(_Experiment(chosen, load), path, resume, workers, progress)


@dataclass(frozen=True, eq=False)
class _Experiment:
    """A run to be: its settings, and how its parts come about."""

    recipe: Recipe
    load: Callable[[str | None], RunParts]


def _experiment(
    data: Dataset,
    clients: Partition | Rule,
    *,
    model: ModelSource,
    method: str | Method,
    local: LocalConfig,
    rounds: int | Schedule,
    seed: int,
    participation: float | None,
    validation: float,
    validation_by: str | None,
    metric: str | None,
    defense: RoundPolicy,
    privacy: Privacy,
    central: bool,
    batch_size: int,
    classifier: str | None,
    workers: int | None,
) -> _Experiment:
    """Return the run of these arguments, whose recipe records what they are."""
    federation = _federate(data, clients, validation, validation_by, seed)
    built = build_method(method, {}) if isinstance(method, str) else method
    network = make_network(model, built, data, replace(local, device="cpu"), seed=seed)
    if classifier is not None:
        set_classifier(network, classifier)
    schedule = Schedule(number=rounds) if isinstance(rounds, int) else rounds
    if participation is not None:
        schedule = replace(schedule, participation=participation)
    if central and len(federation.partition.clients) != 1:
        raise RecipeError(
            "central training has one client that holds all data, as "
            "fedbb.partition.iid(data, clients=1) makes it; the partition has "
            f"{len(federation.partition.clients)}"
        )
    rule = Rule() if central else describe_rule(federation.partition, seed)
    recipe = make_recipe(
        {
            "seed": seed,
            "engine": "central" if central else "inline" if workers == 0 else "auto",
            "privacy": privacy,
            "data": {
                "name": data.name,
                "validation": validation,
                "validation_by": validation_by,
                "partition": asdict(rule),
            },
            "model": {"name": describe_model(model)},
            "method": {"name": method, "options": {}}
            if isinstance(method, str)
            else {"name": method.name, "options": describe_method(method)},
            "local": asdict(local),
            "rounds": asdict(schedule),
            "defense": asdict(defense),
            "evaluation": {"metric": metric, "batch_size": batch_size},
            "python": fingerprints(federation, network),
        },
        where="simulate",
    )
    built = check_settings(recipe, built)

    def load(device: str | None) -> RunParts:
        placed = deepcopy(network).to(local.device if device is None else device)
        return RunParts(built, federation, placed)

    return _Experiment(recipe, load)


def _federate(
    data: Dataset, clients: Partition | Rule, share: float, by: str | None, seed: int
) -> Federation:
    """Hold out validation data, if any, and divide the rest."""
    scored = {"test": data.test}
    labels = data.train.labels
    if isinstance(clients, Partition):
        clients.check(labels)
    if share:
        places = np.arange(len(data.train))
        # The rows alone are drawn, as the examples would be, so that the partition can follow.
        rows = Examples(places, places, data.train.columns)
        kept, held = hold_out(rows, share, stream(seed, "validation"), by=by)
        scored["validation"] = data.train.take(held.labels)
        data = replace(data, train=data.train.take(kept.labels))
        if isinstance(clients, Partition):
            clients = clients.restrict(kept.labels, labels)
    if isinstance(clients, Rule):
        clients = divide(clients.resolve(seed), data.train, data.task)
    return Federation(data, clients, scored)


def _finish(
    experiment: _Experiment,
    path: Path | None,
    resume: bool,
    workers: int | None,
    progress: Progress | None,
) -> Result:
    """Run to the end and return the result."""
    recipe = experiment.recipe
    records: list[Record] = []
    states: dict[str, ModelState] = {}
    parts: list[tuple[nn.Module, Task]] = []

    def load(device: str | None) -> RunParts:
        loaded = experiment.load(device)
        parts[:] = [(loaded.network, loaded.federation.dataset.task)]
        return loaded

    for done in run_parts(recipe, load, path, resume=resume, workers=workers):
        records.append(done.record)
        states["final"] = done.state
        if done.leads:
            states["best"] = done.state
        if progress is not None:
            progress(RoundRecord.from_record(done.record, state_dict(done.state)))
    ((network, task),) = parts
    if path is None:
        metric = recipe.evaluation.metric or DEFAULT_METRIC[task]
        stopped = stopped_by(recipe, records, metric)
        summary = summarize(records, states["final"], metric, stopped)
    else:
        folder = RunFolder(path)
        records, summary = folder.records(), folder.read_json("summary.json")

    def trained(name: str) -> nn.Module:
        if path is None:
            return fill(network, states[name])
        return fill(network, load_checkpoint(path / f"{name}.safetensors").state)

    return make_result(recipe, records, summary, path, trained)


def fill(network: nn.Module, state: ModelState) -> nn.Module:
    """Return a copy of a network with the weights of a state, ready to predict on the CPU."""
    copy = deepcopy(network).cpu()
    restore(copy, state)
    return copy.eval()


def state_dict(state: ModelState) -> dict[str, Tensor]:
    """Return a state under the names of the network's state dict."""
    return {**state.params, **state.buffers}
