"""The runs of a grid's cells: finished or not, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedbb.errors import RunError
from fedbb.recipes.grid.grid import Cell, Grid
from fedbb.recipes.reader import differences
from fedbb.report.results import RunResult, ScoredRound, read_run
from fedbb.runs.folder import Record, RunFolder
from fedbb.runs.sweep import State, read_failure
from fedbb.training.config import LocalConfig

LARGEST = 2**40
"""More samples or seconds than any run has, and few enough to be added without loss."""


@dataclass(frozen=True, eq=False)
class CellRun:
    """A cell with its run, if there is one, or with the reason why there is none.

    `images` counts the training images that its clients processed.
    """

    cell: Cell
    state: State
    message: str = ""
    run: RunResult | None = None
    images: int = 0


def read_cells(grid: Grid, runs_folder: Path) -> list[CellRun]:
    """Return the run of every cell; a folder that cannot be used becomes a message."""
    return [_read_cell(cell, runs_folder / cell.name) for cell in grid.cells]


def finished_run(found: CellRun) -> RunResult:
    """Return the run of a cell that is known to be finished."""
    assert found.run is not None
    return found.run


def count_images(run: RunResult, records: list[Record]) -> int:
    """Return how many training images the clients of these rounds processed, over all epochs.

    Clients of unknown size are assumed to hold equal parts.
    """
    federation = run.federation
    if federation.hidden:
        took_part = sum(len(record["clients"]) for record in records)
        return run.recipe.local.epochs * took_part * federation.train // len(federation.clients)
    per_epoch = {
        client.client: _whole_batches(client.samples, run.recipe.local)
        for client in federation.known
    }
    known = [int(client["client"]) for record in records for client in record["clients"]]
    return run.recipe.local.epochs * sum(per_epoch[client] for client in known)


def _read_cell(cell: Cell, path: Path) -> CellRun:
    failure = _failure(path)
    try:
        if RunFolder(path).is_run():
            return _read_run(cell, path, failure)
    except (RunError, OSError, RecursionError) as error:
        return CellRun(cell, State.FAILED, _without_folder(str(error), path))
    return CellRun(cell, State.FAILED, failure) if failure else CellRun(cell, State.WAITING)


def _read_run(cell: Cell, path: Path, failure: str | None) -> CellRun:
    run, records = read_run(path), RunFolder(path).records()
    same_name = run.recipe.decisive.model_copy(update={"name": cell.recipe.name})
    changed = differences(same_name, cell.recipe.decisive)
    if changed:
        return CellRun(cell, State.FAILED, f"holds a run of another recipe ({changed[0]})")
    try:
        _check_numbers(run)
        images = count_images(run, records)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError(f"it is damaged: {type(error).__name__}: {error}") from error
    if run.summary is not None:
        return CellRun(cell, State.FINISHED, "", run, images)
    if failure:
        return CellRun(cell, State.FAILED, failure, run, images)
    progress = f"{len(run.rounds)} of {cell.recipe.rounds.number} rounds"
    return CellRun(cell, State.UNFINISHED, progress, run, images)


def _check_numbers(run: RunResult) -> None:
    """Reject numbers that JSON files can hold but no run writes, such as infinity."""
    ends = [] if run.summary is None else [run.summary.best, run.summary.final]
    for scored in (*run.rounds, *ends):
        if not (_are_shares(scored) and 0 <= scored.seconds <= LARGEST):
            raise RunError(f"round {scored.number} holds a number out of range")
    if not run.federation.clients:
        raise RunError("federation.json names no client")
    for client in run.federation.known:
        weights = (client.weight, client.weight_by_samples, client.dispersion or 0.0)
        counts = (client.samples, *client.positives, *run.federation.class_counts)
        if not all(0 <= number <= LARGEST for number in (*weights, *counts)):
            raise RunError(f"client {client.client} holds a number out of range")


def _are_shares(scored: ScoredRound) -> bool:
    """Tell whether all scores are undefined or from 0 to 1, and one for each class."""
    for scores in scored.scores.values():
        for values in (list(scores.macro.values()), *scores.per_class.values()):
            array = np.asarray(values, dtype=np.float64)
            if array.ndim != 1 or (array < 0).any() or (array > 1).any():
                return False
    return True


def _failure(path: Path) -> str | None:
    message = read_failure(path)
    return None if message is None else _without_folder(message, path)


def _without_folder(message: str, path: Path) -> str:
    """Remove absolute paths, so that a table does not depend on the place of its runs."""
    return message.replace(f"{path}/", "").replace(str(path), path.name)


def _whole_batches(samples: int, local: LocalConfig) -> int:
    """Return the images of one epoch; a short last batch may be dropped unless it is the only."""
    if local.drop_last and samples > local.batch_size:
        return samples - samples % local.batch_size
    return samples
