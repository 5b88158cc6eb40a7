"""Runs looked up in folders: those a report can use, and why it leaves the others out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedbb.errors import RunError
from fedbb.report.collect import read_run
from fedbb.report.groups import settings_of
from fedbb.report.result import RunResult
from fedbb.report.wording import data_title
from fedbb.runs.sweep import read_failure

# A run whose recipe is lost shall be told of, not overlooked.
SIGNS = frozenset({"recipe.json", "federation.json", "rounds.jsonl"})


@dataclass(frozen=True)
class LeftOut:
    """A folder that a report does without, and the reason."""

    path: Path
    reason: str


@dataclass(frozen=True, eq=False)
class Gathered:
    """Finished runs that can stand side by side, and what was left out."""

    runs: tuple[RunResult, ...]
    left_out: tuple[LeftOut, ...]


def gather(paths: Iterable[Path]) -> Gathered:
    """Return the runs in these folders and below them, each once."""
    runs: list[RunResult] = []
    left_out: list[LeftOut] = []
    for path in paths:
        if not path.is_dir():
            raise RunError(f"{path} is no folder; give run folders, or folders that hold them")
        found = list(find_runs(path))
        if not found:
            left_out.append(LeftOut(path, "holds no run"))
        for folder in found:
            _read(folder, runs, left_out)
    usable, doubled = _sift(runs)
    return Gathered(tuple(usable), (*left_out, *doubled))


def find_runs(path: Path) -> Iterator[Path]:
    """Yield the run folders at or below a folder, in the order of their names."""
    for place, folders, files in os.walk(path):
        if SIGNS & set(files):
            folders.clear()
            yield Path(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def _read(folder: Path, runs: list[RunResult], left_out: list[LeftOut]) -> None:
    try:
        run = read_run(folder)
    except RunError as error:
        left_out.append(LeftOut(folder, str(error)))
        return
    if run.summary is not None:
        runs.append(run)
    else:
        state = f"is unfinished: {len(run.rounds)} of {run.recipe.rounds.number} rounds"
        failure = read_failure(folder)
        left_out.append(LeftOut(folder, f"{state}; it failed: {failure}" if failure else state))


def _sift(runs: Iterable[RunResult]) -> tuple[list[RunResult], list[LeftOut]]:
    """Set apart what `groups.group` would refuse: doubles, and recipes whose data has changed."""
    first: dict[tuple[str, ...], RunResult] = {}
    usable: dict[Path, RunResult] = {}
    left_out = []
    for run in runs:
        method, where = run.recipe.method, (data_title(run), _key(settings_of(run.recipe)))
        whole = (*where, method.name, _key(method.options), str(run.recipe.seed))
        rival = first.setdefault(where, run)
        double = first.setdefault(whole, run)
        if run.path.resolve() in usable:
            continue
        if rival.federation.classes != run.federation.classes:
            left_out.append(LeftOut(run.path, f"has other classes than {rival.path}"))
        elif double is not run:
            left_out.append(LeftOut(run.path, f"holds the same run as {double.path}"))
        else:
            usable[run.path.resolve()] = run
    return list(usable.values()), left_out


def _key(values: object) -> str:
    return json.dumps(values, sort_keys=True)
