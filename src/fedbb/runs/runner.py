"""Running a recipe into a folder, round by round, and going on where an earlier run stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedbb.data.dataset import Dataset
from fedbb.data.fetch import Progress
from fedbb.engine.inline import Inline
from fedbb.errors import RunError
from fedbb.evaluation.scorer import Scorer
from fedbb.methods import Method
from fedbb.models.base import NetworkModule
from fedbb.partition.table import Partition
from fedbb.recipes.check import check_recipe, check_task
from fedbb.recipes.reader import differences, make_recipe
from fedbb.recipes.spec import Recipe
from fedbb.rounds import Round, Schedule, Start, federate
from fedbb.runs import environment
from fedbb.runs.best import DEFAULT_METRIC, best_record, is_better, judged_on
from fedbb.runs.checkpoint import Checkpoint, save_checkpoint
from fedbb.runs.folder import Record, RunFolder, check_foreign, hold
from fedbb.runs.network import make_network
from fedbb.runs.prepare import Federation, describe, prepare
from fedbb.state import digest, snapshot
from fedbb.training.plan import LocalPlan
from fedbb.training.threads import threads


def run(
    recipe: Recipe, path: Path, *, resume: bool = False, progress: Progress | None = None
) -> Iterator[Record]:
    """Run a recipe in a folder and yield the record of each round once it is safely on disk.

    With `resume`, an unfinished run in the folder goes on from its last whole round, to the bit.
    `progress` hears of images being decoded.
    """
    method = check_recipe(recipe)
    check_foreign(path)
    if RunFolder(path).is_run() and not resume:
        raise RunError(f"{path} holds a run already; --resume goes on with it, or choose another")
    with hold(path) as folder, threads(recipe.local.threads):
        if folder.is_run():
            _check_resume(folder, recipe)
        federation = prepare(recipe, progress)
        check_task(method, federation.dataset.task)
        model = _network(recipe, federation.dataset, method)
        if folder.is_run():
            stored = Partition.load(folder.file("partition.json"))
            if stored != federation.partition:
                raise RunError(f"{path}: the recipe now divides the data in another way")
        else:
            _set_up(folder, recipe, federation, method)
        engine = Inline(model, federation.shares, method, _plan(recipe))
        yield from _rounds(folder, recipe, federation, engine)


def _rounds(
    folder: RunFolder, recipe: Recipe, federation: Federation, engine: Inline
) -> Iterator[Record]:
    model, dataset = engine.model, federation.dataset
    checkpoint = folder.latest() or Checkpoint(0, snapshot(model))
    records = folder.rewind(checkpoint.round)
    engine.memories.update(folder.memories(checkpoint))
    metric = recipe.evaluation.metric or DEFAULT_METRIC[dataset.task]
    best = best_record(records, metric)
    batch, device = recipe.evaluation.batch_size, recipe.local.device
    scorer = Scorer(model, dataset, federation.scored, batch, device)
    schedule = Schedule(recipe.rounds.number, recipe.rounds.participation, recipe.seed)
    start = Start(checkpoint.state, checkpoint.round)
    for finished in federate(engine, engine.method, start, schedule, scorer):
        record = _record(finished)
        kept = {
            update.client: engine.memories[update.client]
            for update in finished.updates
            if update.client in engine.memories
        }
        dated = {**checkpoint.memories, **dict.fromkeys(kept, finished.number)}
        checkpoint = Checkpoint(finished.number, finished.state, dated)
        leads = is_better(record, best, metric)
        folder.commit(record, checkpoint, kept, best=leads)
        best = record if leads else best
        records.append(record)
        yield record
    _finish(folder, checkpoint, records, metric)


def _plan(recipe: Recipe) -> LocalPlan:
    # In central training a round is an epoch of one long run, so its momentum goes on.
    return LocalPlan(**recipe.local.model_dump(), keep_momentum=recipe.engine == "central")


def _network(recipe: Recipe, dataset: Dataset, method: Method) -> NetworkModule:
    wanted = recipe.model.projection
    projection = method.needs.projection if wanted is None else wanted
    name, plan = recipe.model.name, _plan(recipe)
    return make_network(name, dataset, plan, seed=recipe.seed, projection=projection)


def _record(finished: Round) -> Record:
    clients = [
        {
            "client": update.client,
            "weight": float(weight),
            "steps": update.steps,
            "train_loss": update.train_loss,
        }
        for update, weight in zip(finished.updates, finished.weights, strict=True)
    ]
    return {
        "round": finished.number,
        "clients": clients,
        "scores": {name: scores.as_json() for name, scores in finished.scores.items()},
        "seconds": {
            "train": round(finished.train_seconds, 4),
            "score": round(finished.score_seconds, 4),
        },
    }


def _set_up(folder: RunFolder, recipe: Recipe, federation: Federation, method: Method) -> None:
    try:
        federation.partition.save(folder.file("partition.json"))
        folder.write_json("federation.json", describe(federation, method))
        folder.write_json("environment.json", environment.describe())
        folder.write_json("recipe.json", recipe.model_dump(mode="json"))
    except OSError as error:
        raise RunError(f"{folder.path} cannot be written: {error}") from error


def _check_resume(folder: RunFolder, recipe: Recipe) -> None:
    changed = differences(make_recipe(folder.read_json("recipe.json")), recipe)
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
