"""Run folders for Python: one as a `Result`, many as a table."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from fedbb._util.table import make_frame
from fedbb.errors import RunError
from fedbb.inference.model import InferenceModel, load_model
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import flatten
from fedbb.report import results
from fedbb.report.results import RunResult, find_runs
from fedbb.runs.checkpoint import load_checkpoint, read_model_metadata
from fedbb.runs.federation import prepare
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import model_info_of
from fedbb.runs.result import Result, RoundRecord
from fedbb.runs.runner import DEFAULT_METRIC, best_record, judged_on
from fedbb.runs.runtime import network_of
from fedbb.runs.simulate import fill

if TYPE_CHECKING:
    import pandas as pd

OwnModel = nn.Module | Callable[[], nn.Module]


def read_run(
    folder: str | PathLike[str], *, model: OwnModel | None = None, allow_code: bool = False
) -> Result:
    """Return the run in a folder, also an unfinished one, as far as it got.

    Args:
        folder: A run folder.
        model: For `Result.model` of a run that was made from Python with a network of its own:
            that network, which is copied, or the function that made it.
        allow_code: Whether a network that the run names as "package.module:function" may be
            imported for `Result.model`, which runs that code.

    Raises:
        RunError: The folder holds no run, is damaged, or has no finished round yet.
    """
    found = results.read_run(Path(folder))
    kept = RunFolder(found.path)
    records = kept.records()
    if not records:
        raise RunError(f"{found.path} has no finished round yet")
    metric = found.recipe.evaluation.metric or DEFAULT_METRIC[found.federation.task]
    best = best_record(records, metric)
    assert best is not None

    def load(name: str) -> InferenceModel:
        path = kept.file(f"{name}.safetensors")
        if not path.exists():
            raise RunError(f"{found.path} is unfinished and has no {name} model yet")
        if read_model_metadata(path) is not None:
            return load_model(path, model=model, allow_code=allow_code)
        return _undescribed(found, path, allow_code)

    return Result(
        recipe=found.recipe,
        history=tuple(RoundRecord.from_record(record) for record in records),
        metric=metric,
        chosen_on=judged_on(best),
        best_round=best["round"],
        sha256=None if found.summary is None else found.summary.sha256,
        folder=found.path,
        _load=load,
        _scores=found.scores,
    )


def read_runs(folder: str | PathLike[str]) -> pd.DataFrame:
    """Return all runs at or below a folder as a pandas DataFrame, a row for each.

    The columns are `run` (its folder), `finished`, `rounds`, `seed`, `data`, `method`, `model`, the
    scores on test data as `final_accuracy`, `best_accuracy` and so on, `best_round`, `seconds`,
    `sent_bytes` of methods that compress, `sha256`, and every setting of its recipe as
    `recipe.local.lr` and the like.

    Args:
        folder: A run folder, or one that holds run folders at any depth.

    Raises:
        RunError: There is no run, one is damaged, or a folder cannot be read.
        ImportError: pandas is not installed.
    """
    found = list(find_runs(Path(folder)))
    if not found:
        raise RunError(f"{folder} holds no runs")
    return make_frame(_row(results.read_run(path)) for path in found)


def _row(run: RunResult) -> dict[str, Any]:
    recipe = run.recipe
    row: dict[str, Any] = {
        "run": str(run.path),
        "finished": run.summary is not None,
        "rounds": len(run.rounds),
        "seed": recipe.seed,
        "data": run.federation.data,
        "method": recipe.method.name,
        "model": recipe.model.title,
    }
    if run.rounds:
        row |= {f"final_{key}": value for key, value in run.rounds[-1].scores["test"].macro.items()}
    if run.summary is not None:
        best = run.summary.best
        row |= {f"best_{key}": value for key, value in best.scores["test"].macro.items()}
        row |= {"best_round": best.number, "sha256": run.summary.sha256}
    row["seconds"] = run.seconds
    if run.sent_bytes is not None:
        row["sent_bytes"] = run.sent_bytes
    return row | {f"recipe.{key}": value for key, value in flatten(recipe.model_dump(mode="json"))}


def _undescribed(run: RunResult, path: Path, allow_code: bool) -> InferenceModel:
    """Return the model of a file without a description, described by the recipe's data.

    Such files come from older versions, and from servers on Flower that have no data.
    """
    method, dataset = check_recipe(run.recipe), prepare(run.recipe).dataset
    network = network_of(run.recipe, method, dataset, allow_code=allow_code)
    info = model_info_of(run.recipe, method, dataset)
    return fill(network, load_checkpoint(path).state, info)
