"""Running a recipe into a folder round by round, and resuming an interrupted run."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fedbb._util.plugins import AllowedCode
from fedbb.data.download import Progress
from fedbb.errors import RunError
from fedbb.evaluation.own_models import PERSONAL_SCORES, SCORES_OF
from fedbb.methods import Method
from fedbb.recipes.check import (
    bind_teacher,
    check_data,
    check_named_code,
    check_recipe,
    check_stopping,
)
from fedbb.recipes.privacy import agreement_of, check_members, exposure_notes, least_cohort
from fedbb.recipes.reader import differences, make_recipe
from fedbb.recipes.spec import Recipe
from fedbb.records import IntArray, ModelState, Task
from fedbb.rounds.loop import Round, Start, StoppedBy, run_rounds
from fedbb.rounds.round import FederatedRound
from fedbb.rounds.server_steps import measure_counts
from fedbb.runs.checkpoint import Checkpoint
from fedbb.runs.federation import (
    Federation,
    describe,
    describe_private,
    digests_of,
    measure_inputs,
    normalize_by_sums,
    prepare,
    sums_inputs,
)
from fedbb.runs.final_scores import ModelScores, check_evaluation
from fedbb.runs.folder import Record, RunFolder, TemporaryStore, check_foreign, open_store
from fedbb.runs.metadata import (
    ENVIRONMENT,
    PARTITION,
    FederationRecord,
    check_environment,
    is_same_partition,
    model_info_of,
    read_federation,
    save_partition_digest,
    set_up_folder,
)
from fedbb.runs.model_info import MODEL_INFO, ModelInfo
from fedbb.runs.runtime import (
    MakeRound,
    RunRuntime,
    SumSites,
    choose_workers,
    local_config_of,
    network_of,
    networks_of,
    open_runtime,
    plain_round,
)
from fedbb.secagg.audit import AuditFile
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool import process_start
from fedbb.simulation.pool.pool import Pool
from fedbb.state import digest
from fedbb.training.checks import check_device, check_network, check_statistics
from fedbb.training.config import LocalConfig
from fedbb.training.threads import threads


@dataclass(frozen=True, eq=False)
class RunParts:
    """What a run is made of, besides its settings: the method, the data, and the first network.

    `by_client` are the networks that clients take in turn, if they have different ones.
    """

    method: Method
    federation: Federation
    network: nn.Module
    by_client: tuple[nn.Module, ...] = ()


FinalScores = dict[str, ModelScores]
"""All scores of the "final" and the "best" model; empty where nobody could compute them."""

LoadParts = Callable[[str | None], RunParts]
"""Returns the parts of a run, its network on this device; None for the device of the recipe."""


@dataclass(frozen=True, eq=False)
class CommittedRound:
    """A finished round: its record, the served model, and whether it is the best so far."""

    record: Record
    state: ModelState
    leads: bool


def run(
    recipe: Recipe,
    path: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    workers: int | None = None,
    allow_code: AllowedCode = False,
) -> Generator[Record, None, None]:
    """Run a recipe in a folder and yield the record of each round once it is safely on disk.

    A call that fails before round 1 is set up leaves no folder behind.

    Args:
        recipe: What to run.
        path: Folder of the run.
        resume: Whether an unfinished run in the folder continues from its last complete round, to
            the same bits; without it a folder that holds a run is refused.
        progress: Called with the number of images decoded so far and in all.
        workers: Number of worker processes; follows the cores if None. It changes no bit.
        allow_code: Whether model.name and method.loss may be "package.module:function", which runs
            that code.

    Yields:
        The record of each round, as rounds.jsonl holds it.

    Raises:
        RecipeError: The recipe contradicts itself, the data or this machine.
        RunError: The folder cannot be used, or holds another run.
    """
    recipe = bind_teacher(recipe, allow_code)
    load = recipe_loader(recipe, allow_code, progress)
    for finished in run_parts(recipe, load, path, resume=resume, workers=workers):
        yield finished.record


def recipe_loader(
    recipe: Recipe, allow_code: AllowedCode = False, progress: Progress | None = None
) -> LoadParts:
    """Return what loads the parts of a recipe, once the recipe is checked.

    Args:
        recipe: What to run.
        allow_code: Whether code that the recipe names as "package.module:function" may run.
        progress: Called with the number of images decoded so far and in all.

    Raises:
        RecipeError: The recipe contradicts itself, or names code that may not run.
    """
    check_named_code(recipe, allow_code)
    method = check_recipe(recipe, allow_code=allow_code)

    def load(device: str | None) -> RunParts:
        federation = prepare(recipe, progress, teacher=method.needs.teacher)
        dataset = federation.dataset
        network = network_of(recipe, method, dataset, device=device, allow_code=allow_code)
        others = networks_of(recipe, method, dataset, device=device, allow_code=allow_code)
        return RunParts(method, federation, network, others)

    return load


def run_parts(
    recipe: Recipe,
    load: LoadParts,
    path: Path | None,
    *,
    resume: bool = False,
    workers: int | None = None,
) -> Generator[CommittedRound, None, FinalScores]:
    """Train what `load` returns by the settings of a recipe: the way of every run on one machine.

    Args:
        recipe: Checked settings; its data, model and method are only written down.
        load: Returns data, network and method.
        path: Folder of the run; None to keep everything in memory.
        resume: Whether an unfinished run in the folder continues.
        workers: Number of worker processes; follows the cores if None.

    Yields:
        Each round once it is committed.

    Returns:
        All scores of the "final" and the "best" model.

    Raises:
        RecipeError: The recipe contradicts the data or this machine.
        RunError: The folder cannot be used, or holds another run.
    """
    check_device(recipe.local.device)
    if path is not None:
        check_foreign(path)
        if RunFolder(path).is_run() and not resume:
            raise RunError(
                f"{path} holds a run already; --resume (in Python resume=True) continues it, or "
                "choose another folder"
            )
    number = choose_workers(recipe, workers)
    if number:
        process_start.prepare()
    with open_store(recipe, path, number) as store, threads(recipe.local.threads):
        if isinstance(store, RunFolder) and store.is_run():
            check_resume(store, recipe)
        # Workers place their networks themselves; here it is only a model to begin with.
        parts = load("cpu" if number else None)
        task = parts.federation.dataset.task
        with _no_garbage_collection():
            opened = _open(store, recipe, parts, number)
        del parts  # the pool has its own copies
        with opened as runtime:
            return (yield from commit_rounds(store, recipe, task, runtime))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Look for no cycles in the block: a million new records of clients have none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _open(
    store: RunFolder | TemporaryStore, recipe: Recipe, parts: RunParts, workers: int
) -> AbstractContextManager[RunRuntime]:
    """Check that the parts of a run suit each other, write its first files, and open its rounds."""
    method, federation, network = parts.method, parts.federation, parts.network
    check_data(recipe, method, federation.dataset, len(federation.partition.clients))
    check_stopping(recipe, "validation" in federation.scored)
    check_evaluation(recipe, federation)
    for one in parts.by_client or (network,):
        check_network(one, federation.dataset, method)
    if parts.by_client:
        check_statistics(method, parts.by_client, federation.dataset)
    if isinstance(store, RunFolder):
        if not store.is_run():
            _set_up(store, recipe, federation, method)
        elif not is_same_partition(store, federation.partition):
            raise RunError(f"{store.path}: the recipe now divides the data in another way")
        else:
            _check_digests(store, digests_of(recipe, federation))
        federation = _normalize(store, recipe, federation)
    make_round = _make_round(recipe, store)
    states = store.client_states
    sum_sites = _sum_sites(recipe, store, method, len(federation.partition.clients))
    return open_runtime(
        recipe,
        federation,
        network,
        method,
        states,
        workers,
        by_client=parts.by_client,
        make_round=make_round,
        sum_sites=sum_sites,
    )


def go_on(folder: RunFolder, recipe: Recipe, task: Task, runtime: RunRuntime) -> Iterator[Record]:
    """Yield the records of the rounds that a folder still lacks, and close the run."""
    for finished in commit_rounds(folder, recipe, task, runtime):
        yield finished.record


def commit_rounds(
    folder: RunFolder | TemporaryStore, recipe: Recipe, task: Task, runtime: RunRuntime
) -> Generator[CommittedRound, None, FinalScores]:
    """Yield the rounds that a run still lacks, each once it is committed, and close the run.

    Returns:
        All scores of the "final" and the "best" model.
    """
    steps = runtime.round.server_steps
    server = steps.begin(runtime.first)
    checkpoint = folder.latest(runtime.first, server) or Checkpoint(0, runtime.first, server=server)
    records = folder.rewind(checkpoint.round)
    runtime.state_rounds.update(checkpoint.state_rounds)
    metric = recipe.evaluation.metric or DEFAULT_METRIC[task]
    try:
        best = best_record(records, metric)
        stopped = stopped_by(recipe, records, metric)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RunError(f"rounds.jsonl is damaged: {error!r} in the scores of a round") from error
    leader: ModelState | None = None
    start = Start(checkpoint.state, checkpoint.round, recipe.seed, checkpoint.server)
    clients = runtime.score_clients
    rounds = run_rounds(runtime.round, start, recipe.rounds, runtime.score, clients)
    local = local_config_of(recipe)
    while stopped is None and (finished := next(rounds, None)) is not None:
        record = _record(finished, runtime.workers, _lr(local, finished.number))
        record |= _personal(runtime, recipe, finished)
        checkpoint = Checkpoint(
            finished.number,
            finished.state,
            dict(runtime.state_rounds),
            server=finished.result.server,
        )
        leads = is_better(record, best, metric)
        # Of an earlier round the parts that clients keep would be missing.
        folder.commit(record, checkpoint, best=leads and clients is None, served=finished.served)
        best, leader = (record, finished.served) if leads else (best, leader)
        records.append(record)
        stopped = stopped_by(recipe, records, metric)
        yield CommittedRound(record, finished.served, leads)
    served = steps.serve(checkpoint.server, checkpoint.state)
    summary = summarize(records, served, metric, stopped)
    scores = _score_finished(folder, runtime, checkpoint, served, summary, leader)
    folder.finish(checkpoint, summary, served, scores)
    return scores


def _score_finished(
    folder: RunFolder | TemporaryStore,
    runtime: RunRuntime,
    checkpoint: Checkpoint,
    served: ModelState,
    summary: Record,
    leader: ModelState | None,
) -> FinalScores:
    """Return all scores of the final and the best model, or those of the clients' own models."""
    if runtime.score_clients is not None:
        sites = runtime.score_clients.sites(served, checkpoint.server)
        return {"final": ModelScores(checkpoint.round, None, sites=sites)}
    if leader is None and isinstance(folder, RunFolder):  # it led before the run was resumed
        leader = folder.best_model()
    return score_models(runtime, checkpoint.round, served, summary["best"]["round"], leader)


def score_models(
    runtime: RunRuntime, last: int, final: ModelState, number: int, best: ModelState | None
) -> FinalScores:
    """Return all scores of the model of the last round, and of the best one if it is there."""
    if runtime.score_fully is None:
        return {}
    # The sums of a private run must rise in their numbers.
    earlier = None
    if number != last and best is not None:
        earlier = runtime.score_fully(number, best)
    scores = {"final": runtime.score_fully(last, final)}
    if number == last:
        scores["best"] = scores["final"]
    elif earlier is not None:
        scores["best"] = earlier
    return scores


def stopped_by(recipe: Recipe, records: Sequence[Record], metric: str) -> StoppedBy | None:
    """Return why a run stops after these rounds, before its last one; None if it goes on."""
    if not recipe.rounds.stops_early:
        return None
    return recipe.rounds.stopped_by([score_of(record, metric) for record in records])


def _lr(local: LocalConfig, number: int) -> dict[str, float]:
    """Return what a record says of the learning rate: nothing if all rounds have the same."""
    return {} if local.lr_schedule.is_constant else {"lr": local.lr_in(number)}


def _personal(runtime: RunRuntime, recipe: Recipe, finished: Round) -> Record:
    """Return the scores of the clients' own models after a round, if they are due."""
    every, number = recipe.evaluation.personal, finished.number
    if runtime.score_personal is None or every is None:
        return {}
    if number % every and number != recipe.rounds.number:
        return {}
    scores = runtime.score_personal(finished.served, finished.result.server)
    return {PERSONAL_SCORES: scores.to_json()}


def _record(finished: Round, workers: int, lr: Mapping[str, float]) -> Record:
    clients = [
        {
            "client": report.client,
            "weight": report.weight,
            "steps": report.steps,
            "train_loss": report.train_loss,
            **({} if report.sent_bytes is None else {"sent_bytes": report.sent_bytes}),
        }
        for report in finished.reports
    ]
    busy = math.fsum(report.seconds for report in finished.reports)
    own = {} if finished.clients is None else {SCORES_OF: finished.clients.to_json()}
    return {
        "round": finished.number,
        **lr,
        "clients": clients,
        "absent": [
            {"client": failure.client, "reason": failure.reason}
            for failure in finished.result.failures
        ],
        "scores": {name: scores.as_json() for name, scores in finished.scores.items()},
        **own,
        "seconds": {
            "train": round(finished.train_seconds, 4),
            "score": round(finished.score_seconds, 4),
        },
        # How the work was done, on which nothing else in the record depends.
        "work": {"workers": workers, "busy_seconds": round(busy, 4)},
    }


def _set_up(folder: RunFolder, recipe: Recipe, federation: Federation, method: Method) -> None:
    """Write what a simulation begins with."""

    def describe_plain() -> FederationRecord:
        federation.partition.save(folder.file(PARTITION))
        record = replace(describe(federation, method), digests=digests)
        return record.with_notes(exposure_notes(recipe, method))

    def describe_enrolled() -> FederationRecord:
        # Cryptography needs an extra, and takes time to load.
        from fedbb.secagg.simulated import enrol

        save_partition_digest(folder, federation.partition)
        infos = federation.client_infos(method.weighting)
        check_members(recipe, method, len(infos))
        agreement = agreement_of(recipe, method, len(infos))
        enrol(
            folder.path,
            recipe.privacy,
            agreement,
            infos,
            least_cohort(recipe, len(infos)),
            measured=_measure(recipe, federation, method),
        )
        return replace(describe_private(federation), digests=digests)

    digests = digests_of(recipe, federation)
    is_plain = recipe.privacy == "none"

    def describe_model() -> ModelInfo | None:
        return model_info_of(recipe, method, _normalize(folder, recipe, federation).dataset)

    begin = describe_plain if is_plain else describe_enrolled
    set_up_folder(folder, recipe, begin, describe_model)


def _check_digests(folder: RunFolder, found: Mapping[str, str]) -> None:
    """Refuse to resume a run with other files than those that it began with."""
    before = read_federation(folder).digests
    for key in before.keys() & found.keys():
        if before[key] != found[key]:
            raise RunError(
                f"{folder.path}: {key} is not what the run began with: its SHA-256 is "
                f"{found[key]}, and it was {before[key]}"
            )


def _measure(recipe: Recipe, federation: Federation, method: Method) -> list[dict[str, IntArray]]:
    """Return what each client of a private run adds to the sum before round 1."""
    adjusts = bool(recipe.evaluation.logit_adjustment)
    found = [
        measure_counts(method, client.counts, label_counts=adjusts) for client in federation.clients
    ]
    if sums_inputs(recipe):
        rows = federation.partition.clients
        parts = [measure_inputs(federation.dataset, own) for own in rows]
        found = [counts | inputs for counts, inputs in zip(found, parts, strict=True)]
    return found


def _normalize(folder: RunFolder, recipe: Recipe, federation: Federation) -> Federation:
    """Return the federation whose inputs are normalized by the secure sum, if there is one."""
    if not sums_inputs(recipe):
        return federation
    audit = AuditFile.read(folder.path)
    clients = len(audit.sums.clients)
    dataset = normalize_by_sums(federation.dataset, audit.measured, clients)
    return replace(federation, dataset=dataset)


def _make_round(recipe: Recipe, folder: RunFolder | TemporaryStore) -> MakeRound:
    """Return how a run in this folder aggregates what its clients train."""
    if recipe.privacy == "none" or isinstance(folder, TemporaryStore):
        return plain_round
    from fedbb.secagg.simulated import open_round

    def secure_round(recipe: Recipe, engine: Inline | Pool) -> FederatedRound:
        agreement = agreement_of(recipe, engine.method, len(engine.client_infos()))
        return open_round(folder.path, agreement, recipe.defense, engine, recipe.seed)

    return secure_round


def _sum_sites(
    recipe: Recipe, folder: RunFolder | TemporaryStore, method: Method, clients: int
) -> SumSites | None:
    """Return how a private run sums the scores on clients' own test data; None if it is open."""
    if recipe.privacy == "none" or isinstance(folder, TemporaryStore) or not recipe.data.own_test:
        return None
    from fedbb.secagg.simulated import sum_sites

    agreement = agreement_of(recipe, method, clients)
    return partial(sum_sites, folder.path, agreement, recipe.defense)


def check_resume(folder: RunFolder, recipe: Recipe) -> None:
    """Refuse to resume with another recipe, or with other versions of what results depend on."""
    check_same_recipe(folder, recipe)
    check_environment(folder.read_json(ENVIRONMENT), recipe.method.name)
    if folder.file(MODEL_INFO).exists():  # a run folder of an older version has none
        ModelInfo.from_json(folder.read_json(MODEL_INFO), str(folder.file(MODEL_INFO)))


def check_same_recipe(folder: RunFolder, recipe: Recipe) -> None:
    """Refuse a folder whose run has another recipe, as far as results depend on it."""
    found = make_recipe(folder.read_json("recipe.json"), f"recipe of {folder.path}")
    changed = differences(found.decisive, recipe.decisive)
    if changed:
        raise RunError(f"{folder.path} was started with another recipe; " + "; ".join(changed))


def summarize(
    records: Sequence[Record], last: ModelState, metric: str, stopped: StoppedBy | None = None
) -> dict[str, Any]:
    """Return the summary of a run of these rounds, as summary.json holds it."""
    best, final = best_record(records, metric), records[-1]
    assert best is not None
    return {
        "rounds": final["round"],
        **({} if stopped is None else {"stopped": stopped}),
        "metric": metric,
        **({SCORES_OF: final[SCORES_OF]} if SCORES_OF in final else {}),
        "best": {
            "round": best["round"],
            "chosen_on": judged_on(best),
            "scores": best["scores"],
        },
        "final": {"round": final["round"], "scores": final["scores"]},
        "sha256": digest(last),
    }


DEFAULT_METRIC = {Task.MULTICLASS: "balanced_accuracy", Task.MULTILABEL: "auroc"}


def score_of(record: dict[str, Any], metric: str) -> float:
    """Return the metric on validation data if there is some, else on test data; −∞ if undefined."""
    value = record["scores"][judged_on(record)]["macro"][metric]
    return -math.inf if value is None else float(value)


def judged_on(record: dict[str, Any]) -> str:
    """Name the examples the best round is chosen on."""
    return "validation" if "validation" in record["scores"] else "test"


def is_better(record: dict[str, Any], before: dict[str, Any] | None, metric: str) -> bool:
    """Return whether a round beats the best one so far; an equal one does not."""
    return before is None or score_of(record, metric) > score_of(before, metric)


def best_record(records: Iterable[dict[str, Any]], metric: str) -> dict[str, Any] | None:
    """Return the first of the best rounds."""
    return max(records, key=lambda record: score_of(record, metric), default=None)
