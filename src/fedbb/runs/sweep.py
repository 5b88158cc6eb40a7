"""Running a grid into a folder: finished cells are kept, the others run in parallel."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fedbb._util.files import parse_json, replacing
from fedbb._util.plugins import AllowedCode
from fedbb.errors import FedbbError, RunError
from fedbb.recipes.grid import Cell, Grid
from fedbb.runs.folder import RunFolder, lock_folder
from fedbb.runs.runner import check_same_recipe
from fedbb.runs.scheduler import EventKind, RunEvent, run_jobs, seconds_of

RUNS = "runs"
"""The folder within a sweep's own that its cells' folders are in."""

LOCK = ".grid.lock"

FAILED = ".failed.json"
"""Ending of the note that says why a run failed; it is beside the folder, until a new try."""


class State(StrEnum):
    """How far a cell has come."""

    WAITING = "waiting"
    UNFINISHED = "unfinished"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class CellStatus:
    """How far a cell has come: rounds saved of how many, seconds they took, why it failed."""

    state: State
    rounds: int
    of: int
    seconds: float = 0.0
    message: str = ""


def statuses(grid: Grid, out: Path) -> dict[str, CellStatus]:
    """Return how far each cell has come, by its name; its folder is `out/<name>`."""
    return {cell.name: _status(cell, out / cell.name) for cell in grid.cells}


def failures(grid: Grid, found: Mapping[str, CellStatus]) -> dict[str, str]:
    """Return why cells failed, by what they are called."""
    return {
        cell.title: found[cell.name].message
        for cell in grid.cells
        if found[cell.name].state is State.FAILED
    }


def run_grid(
    grid: Grid,
    out: Path,
    workers: int | None = None,
    *,
    seconds: Mapping[str, float] | None = None,
    allow_code: AllowedCode = False,
) -> Generator[tuple[Cell, RunEvent], None, None]:
    """Run or go on with all cells that are not finished, and yield what happens to each.

    Cells that failed are tried again. With `seconds` by cell the longest are started first, so that
    the processes end at about the same time. A cell that fails does not stop the others.
    """
    with hold_folder(out):
        found = statuses(grid, out)
        missing = [cell for cell in grid.cells if found[cell.name].state is not State.FINISHED]
        missing.sort(key=lambda cell: -(seconds or {}).get(cell.name, 0.0))
        yield from _run(missing, out, workers, allow_code)


def _run(
    cells: Sequence[Cell], out: Path, workers: int | None, allow_code: AllowedCode
) -> Iterator[tuple[Cell, RunEvent]]:
    by_path = {out / cell.name: cell for cell in cells}
    jobs = [(cell.recipe, path) for path, cell in by_path.items()]
    for event in run_jobs(jobs, workers, allow_code=allow_code):
        if event.kind is EventKind.BEGUN:
            forget_failure(event.path)
        elif event.kind is EventKind.FAILED:
            note_failure(event.path, event.message)
        yield by_path[event.path], event


def _status(cell: Cell, path: Path) -> CellStatus:
    folder, of = RunFolder(path), cell.recipe.rounds.number
    failure = read_failure(path)
    try:
        records = folder.records()
        seconds = sum((seconds_of(record) for record in records), 0.0)
        if folder.is_run():
            check_same_recipe(folder, cell.recipe)
    except (FedbbError, KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        reason = str(error) if isinstance(error, FedbbError) else f"{path} is damaged: {error!r}"
        return CellStatus(State.FAILED, 0, of, 0.0, reason)
    if is_finished(folder, len(records), of):
        return CellStatus(State.FINISHED, len(records), of, seconds)
    state = State.FAILED if failure else State.UNFINISHED if records else State.WAITING
    return CellStatus(state, len(records), of, seconds, failure or "")


def is_finished(folder: RunFolder, rounds: int, of: int) -> bool:
    """Return whether the run is finished; one whose summary is damaged is finished again."""
    try:
        summary = folder.read_json("summary.json")
        expected = summary["rounds"] if "stopped" in summary else of
        return rounds == expected and "sha256" in summary
    except (RunError, KeyError, TypeError):
        return False


@contextmanager
def hold_folder(out: Path) -> Iterator[None]:
    """Make the folder if need be, and keep other processes from running the same cells."""
    lock, _ = lock_folder(out, LOCK)
    try:
        yield
    finally:
        lock.release()


def note_failure(path: Path, message: str) -> None:
    """Note beside a run folder why its run failed."""
    text = json.dumps({"message": message}, ensure_ascii=False) + "\n"
    try:
        with replacing(_note(path)) as file:
            file.write(text.encode())
    except OSError as error:
        raise RunError(f"{path.name} failed ({message}), and {error}") from error


def read_failure(path: Path) -> str | None:
    """Return why the run of this folder failed, or None if no failure is noted."""
    try:
        note = parse_json(_note(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return f"the note of its failure cannot be read: {error}"
    message = note.get("message") if isinstance(note, dict) else None
    return str(message or "it failed without a message")


def forget_failure(path: Path) -> None:
    """Delete the note, as when the run is tried again."""
    _note(path).unlink(missing_ok=True)


def _note(path: Path) -> Path:
    return path.with_name(path.name + FAILED)
