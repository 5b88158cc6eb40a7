"""Federations from Python: data, clients, network and method as objects, a result in return."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy.typing as npt
from torch import Tensor, nn

from fedbb._util.plugins import AllowedCode
from fedbb.data.dataset import Dataset
from fedbb.errors import RunError
from fedbb.evaluation.operating_point import ThresholdRule
from fedbb.inference.model import InferenceModel, own_model_message
from fedbb.methods import Method
from fedbb.models.registry import ModelSource
from fedbb.partition.partition import Partition
from fedbb.partition.registry import Rule
from fedbb.recipes.check import bind_teacher
from fedbb.recipes.reader import make_recipe, read_recipe
from fedbb.recipes.spec import Recipe
from fedbb.records import ModelState, Task
from fedbb.rounds.loop import Schedule
from fedbb.rounds.round import RoundPolicy
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import Record, RunFolder
from fedbb.runs.metadata import model_info_of
from fedbb.runs.model_info import ModelInfo
from fedbb.runs.python_recipe import Arguments, Experiment, Privacy
from fedbb.runs.result import Result, RoundRecord, make_result
from fedbb.runs.runner import (
    DEFAULT_METRIC,
    CommittedRound,
    FinalScores,
    RunParts,
    recipe_loader,
    run_parts,
    stopped_by,
    summarize,
)
from fedbb.secagg.dp import DifferentialPrivacy
from fedbb.secagg.neighbours import SecureSums
from fedbb.state import restore
from fedbb.training.config import LocalConfig

LOCAL = LocalConfig()
DEFENSE = RoundPolicy()
SECURE = SecureSums()

Progress = Callable[[RoundRecord], None]


def simulate(
    data: Dataset,
    clients: Partition | Rule,
    *,
    public: Dataset | npt.NDArray[Any] | None = None,
    model: ModelSource | Sequence[ModelSource] = "small-cnn",
    method: str | Method = "fedavg",
    local: LocalConfig = LOCAL,
    rounds: int | Schedule = 10,
    seed: int = 0,
    participation: float | None = None,
    validation: float = 0.0,
    validation_by: str | None = None,
    own_test: float = 0.0,
    metric: str | None = None,
    defense: RoundPolicy = DEFENSE,
    privacy: Privacy = "none",
    dp: DifferentialPrivacy | None = None,
    secure: SecureSums = SECURE,
    central: bool = False,
    batch_size: int = 256,
    min_cases: int = 10,
    bootstrap: int = 1000,
    threshold: ThresholdRule | None = None,
    logit_adjustment: bool | float = False,
    personal: int | None = None,
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
        public: Inputs without labels that every client and the server have, for methods of
            distillation: an array (N, …), or a data set, of which the training inputs are taken.
        model: The network: a function that returns one, an `nn.Module`, which is copied and keeps
            its weights, or the name of a built-in one. A list of these is taken in turn by the
            clients, where the method exchanges no model.
        method: The algorithm: a name such as "fedbb" or "moon+fedbb", what a function of
            `fedbb.methods` returns, or a `Method` of your own.
        local: Local training of a client.
        rounds: Number of rounds, or a `Schedule` with early stopping.
        seed: Seed of all random streams.
        participation: Share of the clients that train in a round; all by default.
        validation: Share of the training data that is held out to choose the best round; every
            client gives up some of its examples.
        validation_by: Column whose values are held out whole, such as the patient.
        own_test: Share of each client's data that it keeps to test the shared model on; see
            `Result.scores`.
        metric: Macro metric by which the best round is chosen; by default balanced accuracy, or
            AUROC for multi-label data.
        defense: Fault tolerance and Byzantine robustness.
        privacy: Secure aggregation, "masked" or "bfv".
        dp: Differential privacy of model changes, under secure aggregation.
        secure: With whom clients share masks in secure sums, and what these may reveal.
        central: Whether one client trains on all data without any federation; its optimizer goes
            on from round to round.
        batch_size: Examples that are scored at once.
        min_cases: Test cases of a class below which it is left out of the second macro mean.
        bootstrap: Replicates for the intervals of the final and the best model; 0 for none.
        threshold: How a threshold for each class is chosen on validation data: "youden", "f1", or
            the sensitivity to reach; None for one half.
        logit_adjustment: Strength of the post-hoc adjustment of the trained model by the class
            shares of all clients; True for 1.
        personal: Rounds from one score of the clients' own models on their own test data
            (`own_test`) to the next; None for none before the end.
        classifier: Name of the module of the network whose input is the embedding, for methods
            such as MOON; the last `nn.Linear` by default.
        workers: Worker processes in which clients train, to the same bits; 0 for none, None for
            one per core. Networks and losses may be defined in the script itself, which needs no
            `if __name__ == "__main__":`.
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
    return _finish(_experiment(locals()), out, resume, workers, progress)


def iter_rounds(
    data: Dataset,
    clients: Partition | Rule,
    *,
    public: Dataset | npt.NDArray[Any] | None = None,
    model: ModelSource | Sequence[ModelSource] = "small-cnn",
    method: str | Method = "fedavg",
    local: LocalConfig = LOCAL,
    rounds: int | Schedule = 10,
    seed: int = 0,
    participation: float | None = None,
    validation: float = 0.0,
    validation_by: str | None = None,
    own_test: float = 0.0,
    metric: str | None = None,
    defense: RoundPolicy = DEFENSE,
    privacy: Privacy = "none",
    dp: DifferentialPrivacy | None = None,
    secure: SecureSums = SECURE,
    central: bool = False,
    batch_size: int = 256,
    min_cases: int = 10,
    bootstrap: int = 1000,
    threshold: ThresholdRule | None = None,
    logit_adjustment: bool | float = False,
    personal: int | None = None,
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
    experiment = _experiment(locals())
    path = None if out is None else Path(out)
    for done in run_parts(experiment.recipe, experiment.load, path, resume=resume, workers=workers):
        yield RoundRecord.from_record(done.record, state_dict(done.state))


def run(
    recipe: Recipe | Mapping[str, Any] | str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    resume: bool = False,
    workers: int | None = None,
    allow_code: AllowedCode = False,
    progress: Progress | None = None,
) -> Result:
    """Run a recipe, as `fedbb run` does.

    Args:
        recipe: A recipe, a table of its settings, or the path of its file.
        out: Folder that keeps the run; without it nothing is written.
        resume: Whether an unfinished run in `out` goes on, to the same bits.
        workers: Worker processes; one per core if None, 0 for none.
        allow_code: Whether code that the recipe names as "package.module:function" may run: all,
            or a list of such names.
        progress: Called after each round.

    Returns:
        The scores, the trained model and one record per round.

    Raises:
        RecipeError: The recipe contradicts itself, the data or this machine.
        DataError: The data cannot be read or divided.
        RunError: The folder cannot be used, or holds another run.
    """
    if isinstance(recipe, Mapping):
        recipe = make_recipe(recipe)
    elif not isinstance(recipe, Recipe):
        recipe = read_recipe(Path(recipe))
    recipe = bind_teacher(recipe, allow_code)
    load = recipe_loader(recipe, allow_code)
    return _finish(Experiment(recipe, load), out, resume, workers, progress)


def _experiment(given: Mapping[str, Any]) -> Experiment:
    """Return the run of the arguments of `simulate` or `iter_rounds`.

    Both write their signature out, for editors and readers; the values go on by their names.
    """
    return Arguments(**{field.name: given[field.name] for field in fields(Arguments)}).experiment()


def _finish(
    experiment: Experiment,
    out: str | PathLike[str] | None,
    resume: bool,
    workers: int | None,
    progress: Progress | None,
) -> Result:
    """Run to the end and return the result."""
    recipe, path = experiment.recipe, None if out is None else Path(out)
    records: list[Record] = []
    states: dict[str, ModelState] = {}
    built: list[tuple[nn.Module, ModelInfo]] = []

    def load(device: str | None) -> RunParts:
        parts = experiment.load(device)
        info = model_info_of(recipe, parts.method, parts.federation.dataset)
        built[:] = [(parts.network, info)]  # what is needed at the end, without the data
        return parts

    rounds = run_parts(recipe, load, path, resume=resume, workers=workers)
    scores = _follow(rounds, records, states, progress)
    ((network, info),) = built
    if path is None:
        metric = recipe.evaluation.metric or DEFAULT_METRIC[Task(info.task)]
        stopped = stopped_by(recipe, records, metric)
        summary = summarize(records, states["final"], metric, stopped)
    else:
        folder = RunFolder(path)
        records, summary = folder.records(), folder.read_json("summary.json")

    def trained(name: str) -> InferenceModel:
        if info.unshared:
            raise RunError(own_model_message(info, path))
        file = f"{name}.safetensors"
        state = states[name] if path is None else load_checkpoint(path / file).state
        decision: dict[str, Any] = scores[name].decision
        described = replace(info, **decision)
        return fill(network, state, described)

    return make_result(recipe, records, summary, path, trained, scores)


def _follow(
    rounds: Generator[CommittedRound, None, FinalScores],
    records: list[Record],
    states: dict[str, ModelState],
    progress: Progress | None,
) -> FinalScores:
    """Add the records of all rounds and the final and best state, and return the scores."""
    while True:
        try:
            done = next(rounds)
        except StopIteration as end:
            scores: FinalScores = end.value
            return scores
        records.append(done.record)
        states["final"] = done.state
        if done.leads:
            states["best"] = done.state
        if progress is not None:
            progress(RoundRecord.from_record(done.record, state_dict(done.state)))


def fill(network: nn.Module, state: ModelState, info: ModelInfo) -> InferenceModel:
    """Return a copy of a network with the weights of a state, ready to predict on the CPU."""
    copy = deepcopy(network).cpu()
    restore(copy, state)
    return InferenceModel(copy, info).eval()


def state_dict(state: ModelState) -> dict[str, Tensor]:
    """Return a state under the names of the network's state dict."""
    return {**state.params, **state.buffers}
