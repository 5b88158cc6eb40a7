"""Running a recipe into a folder, round by round, and going on where an earlier run stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from fedbb.data.download import Progress
from fedbb.errors import RunError
from fedbb.methods import Method
from fedbb.recipes.check import check_recipe, check_task
from fedbb.recipes.defense import check_crowd
from fedbb.recipes.privacy import agreement_of, check_members, least_cohort
from fedbb.recipes.reader import differences, make_recipe
from fedbb.recipes.spec import Recipe
from fedbb.records import Task
from fedbb.rounds.loop import Round, Schedule, Start, run_rounds
from fedbb.rounds.round import FederatedRound
from fedbb.runs import metadata as environment
from fedbb.runs.best import DEFAULT_METRIC, best_record, is_better, judged_on
from fedbb.runs.checkpoint import Checkpoint, save_checkpoint
from fedbb.runs.federation import Federation, describe, describe_hidden, prepare
from fedbb.runs.folder import Record, RunFolder, check_foreign, hold
from fedbb.runs.partition_file import hide_division, is_division
from fedbb.runs.runtime import (
    Joining,
    RunRuntime,
    make_join,
    open_runtime,
    round_policy_of,
    wanted_workers,
)
from fedbb.simulation.base import make_client_infos
from fedbb.simulation.inline import Inline
from fedbb.simulation.pool import process_start as process_start
from fedbb.simulation.pool.pool import Pool
from fedbb.state import digest
from fedbb.training.threads import threads


def run(
    recipe: Recipe,
    path: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Iterator[Record]:
    """Run a recipe in a folder and yield the record of each round once it is safely on disk.

    With `resume`, an unfinished run in the folder goes on from its last whole round, to the bit.
    `progress` hears of images being decoded. The number of workers changes no bit; it follows the
    cores if not given.
    """
    method = check_recipe(recipe)
    check_foreign(path)
    if RunFolder(path).is_run() and not resume:
        raise RunError(f"{path} holds a run already; --resume goes on with it, or choose another")
    number = wanted_workers(recipe, workers)
    if number:
        process_start.prepare()
    with hold(path, kept=_kept(recipe)) as folder, threads(recipe.local.threads):
        if folder.is_run():
            check_resume(folder, recipe)
        federation = prepare(recipe, progress)
        check_task(method, federation.dataset.task)
        check_crowd(recipe, len(federation.partition.clients))
        task = federation.dataset.task
        if not folder.is_run():
            _set_up(folder, recipe, federation, method)
        elif not is_division(folder, federation.partition):
            raise RunError(f"{path}: the recipe now divides the data in another way")
        joining = _joining(recipe, folder)
        opened = open_runtime(recipe, federation, method, folder.memories, number, joining=joining)
        del federation
        with opened as workshop:
            yield from go_on(folder, recipe, task, workshop)


def go_on(folder: RunFolder, recipe: Recipe, task: Task, workshop: RunRuntime) -> Iterator[Record]:
    """Yield the rounds that a folder still lacks, each once it is committed, and close the run."""
    checkpoint = folder.latest() or Checkpoint(0, workshop.first)
    records = folder.rewind(checkpoint.round)
    workshop.state_rounds.update(checkpoint.state_rounds)
    metric = recipe.evaluation.metric or DEFAULT_METRIC[task]
    best = best_record(records, metric)
    schedule = Schedule(recipe.rounds.number, recipe.rounds.participation, recipe.seed)
    start = Start(checkpoint.state, checkpoint.round)
    for finished in run_rounds(workshop.join, start, schedule, workshop.score):
        record = _record(finished, workshop.workers)
        checkpoint = Checkpoint(finished.number, finished.state, dict(workshop.state_rounds))
        leads = is_better(record, best, metric)
        folder.commit(record, checkpoint, best=leads)
        best = record if leads else best
        records.append(record)
        yield record
    _finish(folder, checkpoint, records, metric)


def _record(finished: Round, workers: int) -> Record:
    clients = [
        {
            "client": report.client,
            "weight": report.weight,
            "steps": report.steps,
            "train_loss": report.train_loss,
        }
        for report in finished.reports
    ]
    busy = math.fsum(report.seconds for report in finished.reports)
    return {
        "round": finished.number,
        "clients": clients,
        "absent": [
            {"client": failure.client, "reason": failure.reason}
            for failure in finished.result.failures
        ],
        "scores": {name: scores.as_json() for name, scores in finished.scores.items()},
        "seconds": {
            "train": round(finished.train_seconds, 4),
            "score": round(finished.score_seconds, 4),
        },
        # How the work was done, on which nothing else in the record depends.
        "work": {"workers": workers, "busy_seconds": round(busy, 4)},
    }


def _set_up(folder: RunFolder, recipe: Recipe, federation: Federation, method: Method) -> None:
    try:
        if recipe.privacy == "none":
            federation.partition.save(folder.file("partition.json"))
            folder.write_json("federation.json", describe(federation, method))
        else:
            from fedbb.secagg.simulated import enrol

            hide_division(folder, federation.partition)
            folder.write_json("federation.json", describe_hidden(federation))
            infos = make_client_infos(federation.shares, method.weighting)
            check_members(recipe, method, len(infos))
            agreement = agreement_of(recipe, method, len(infos))
            least = least_cohort(recipe, len(infos))
            enrol(folder.path, recipe.privacy, agreement, infos, least)
        folder.write_json("environment.json", environment.describe())
        folder.write_json("recipe.json", recipe.model_dump(mode="json"))
    except OSError as error:
        raise RunError(f"{folder.path} cannot be written: {error}") from error


def _kept(recipe: Recipe) -> str:
    """Return where clients' memories go: those of a private run are not for its server."""
    return "memories" if recipe.privacy == "none" else "parties/memories"


def _joining(recipe: Recipe, folder: RunFolder) -> Joining:
    """Return how a run in this folder joins what its clients train."""
    if recipe.privacy == "none":
        return make_join
    # Cryptography needs an extra, and takes time to load.
    from fedbb.secagg.simulated import open_round

    def make_secure_round(recipe: Recipe, engine: Inline | Pool) -> FederatedRound:
        agreement = agreement_of(recipe, engine.method, len(engine.client_infos()))
        return open_round(folder.path, agreement, round_policy_of(recipe), engine, recipe.seed)

    return make_secure_round


def check_resume(folder: RunFolder, recipe: Recipe) -> None:
    """Refuse to go on with another recipe, or with other versions of what results depend on."""
    changed = differences(make_recipe(folder.read_json("recipe.json")).decisive, recipe.decisive)
    if changed:
        raise RunError(f"{folder.path} was begun with another recipe; " + "; ".join(changed))
    environment.check_same(folder.read_json("environment.json"))


def _finish(folder: RunFolder, last: Checkpoint, records: list[Record], metric: str) -> None:
    best = best_record(records, metric)
    assert best is not None
    save_checkpoint(folder.file("final.safetensors"), last)
    folder.write_json(
        "summary.json",
        {
            "rounds": last.round,
            "metric": metric,
            "best": {
                "round": best["round"],
                "chosen_on": judged_on(best),
                "scores": best["scores"],
            },
            "final": {"round": last.round, "scores": records[-1]["scores"]},
            "sha256": digest(last.state),
        },
    )
