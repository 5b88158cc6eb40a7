"""One side of a comparison: a run, or runs that differ by nothing but their seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbb.errors import RunError
from fedbb.recipes.reader import flatten
from fedbb.report.collect import read_run
from fedbb.report.result import RunResult
from fedbb.runs.folder import RunFolder

EXPECTED = "give a run folder, a folder of runs, or a pattern in quotes"
MAGIC = set("*?[")
SHOWN = 4


@dataclass(frozen=True, eq=False)
class Side:
    """Finished runs in the order of their seeds; `notes` tell what was left out of them."""

    given: str
    runs: tuple[RunResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(run.recipe.seed for run in self.runs)

    def of_seed(self, seed: int) -> RunResult:
        """Return the run of a seed."""
        return self.runs[self.seeds.index(seed)]


def read_side(given: str) -> Side:
    """Return the runs in a run folder, in a folder of runs, or in those that match a pattern."""
    path = Path(given)
    if RunFolder(path).is_run():
        run = read_run(path)
        if run.summary is None:
            raise RunError(f"{path} is unfinished; go on with: fedbb run --resume {path}")
        return Side(given, (run,))
    runs, notes = _usable(_find(given))
    if not runs:
        raise RunError(f"{given} holds no finished run; " + "; ".join(notes or [EXPECTED]))
    _check_alike(given, runs)
    return Side(given, _by_seed(given, runs), tuple(notes))


def settings_of(run: RunResult) -> dict[str, Any]:
    """Return the settings that bear on results, but the seed, flat, by dotted names."""
    return dict(flatten(run.recipe.decisive.model_dump(exclude={"name", "seed"})))


def _find(given: str) -> list[Path]:
    path = Path(given)
    if path.is_dir():
        return sorted(file.parent for file in path.rglob("recipe.json"))
    if not MAGIC & set(given):
        raise RunError(f"{given} does not exist; {EXPECTED}")
    try:
        matches = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except ValueError as error:
        raise RunError(f"{given} is no pattern: {error}") from error
    return [match for match in matches if RunFolder(match).is_run()]


def _usable(paths: Iterable[Path]) -> tuple[list[RunResult], list[str]]:
    """Return the finished runs, and a note for each folder that is left out."""
    runs, notes = [], []
    for path in paths:
        try:
            run = read_run(path)
        except RunError as error:
            notes.append(f"left out: {error}")
            continue
        if run.summary is None:
            notes.append(f"left out: {path} is unfinished")
        else:
            runs.append(run)
    return runs, notes


def _check_alike(given: str, runs: Sequence[RunResult]) -> None:
    settings = [settings_of(run) for run in runs]
    keys = dict.fromkeys(key for found in settings for key in found)
    for key in keys:
        values = list(dict.fromkeys(str(found.get(key)) for found in settings))
        if len(values) > 1:
            shown = ", ".join(values[:SHOWN]) + (" …" if len(values) > SHOWN else "")
            raise RunError(
                f"{given} mixes runs that differ by more than their seed ({key}: {shown}); "
                "choose some of them by a pattern in quotes, such as 'runs/*fedbb*'"
            )


def _by_seed(given: str, runs: Sequence[RunResult]) -> tuple[RunResult, ...]:
    found: dict[int, RunResult] = {}
    for run in runs:
        first = found.setdefault(run.recipe.seed, run)
        if first is not run:
            raise RunError(
                f"{given} holds seed {run.recipe.seed} twice: {first.path} and {run.path}"
            )
    return tuple(found[seed] for seed in sorted(found))
