"""Runs found, read and sorted: the seeds of one method, the methods of one federation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbb._util.files import why_unreadable
from fedbb.errors import RunError
from fedbb.methods import METHODS
from fedbb.recipes.reader import flatten
from fedbb.recipes.spec import ModelSpec, PythonRecipe, Recipe
from fedbb.report.results import RunResult, find_runs, read_run, summary_of, summary_so_far
from fedbb.report.text import CLASS_METRIC, data_title, method_title, settings_text
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import FederationRecord
from fedbb.runs.sweep import read_failure

BASE = "fedavg"
CONTROL = "fedavg-scaled"
"""FedAvg with the step sizes of PNB: what a method gains over it is due to re-weighting."""

EXPECTED = "give a run folder, a folder of runs, or a pattern in quotes"
WILDCARDS = set("*?[")
SHOWN = 4
"""Values of a setting that an error message lists."""


@dataclass(frozen=True, eq=False)
class MethodRuns:
    """The finished runs of one method, one for each seed, in the order of the seeds.

    `notes` say which folders were left out.
    """

    method: str
    label: str
    runs: tuple[RunResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(run.recipe.seed for run in self.runs)

    def of_seed(self, seed: int) -> RunResult:
        """Return the run of a seed."""
        return self.runs[self.seeds.index(seed)]

    def scores(self, score: Callable[[RunResult], float]) -> dict[int, float]:
        """Return a score of each run by its seed."""
        return {run.recipe.seed: score(run) for run in self.runs}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods on one data set with everything but method and seed alike."""

    title: str
    methods: tuple[MethodRuns, ...]

    @property
    def federation(self) -> FederationRecord:
        """The federation of the first seed."""
        return self.first.federation

    @property
    def first(self) -> RunResult:
        """The first seed's run of the first method."""
        return self.methods[0].runs[0]

    @property
    def runs(self) -> list[RunResult]:
        """All runs, method by method."""
        return [run for part in self.methods for run in part.runs]

    @property
    def class_metric(self) -> str:
        """The metric that scores each class."""
        return CLASS_METRIC[self.federation.task]

    @property
    def metric(self) -> str:
        """The macro metric by which the runs chose their best round."""
        return summary_of(self.first).metric


@dataclass(frozen=True)
class LeftOut:
    """A folder that a report does not use, and the reason.

    With `under_way` it uses the rounds so far, and the reason tells how many these are.
    """

    path: Path
    reason: str
    under_way: bool = False

    def __str__(self) -> str:
        """Return the folder and the reason."""
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Gathered:
    """Finished runs that can be compared, and what was left out."""

    runs: tuple[RunResult, ...]
    left_out: tuple[LeftOut, ...]


def gather(paths: Iterable[Path], *, unfinished: bool = False) -> Gathered:
    """Return the finished runs in these folders and below them, each once.

    Args:
        paths: Run folders, or folders that hold them.
        unfinished: Whether runs that are under way count too, as if they ended at their last round.

    Raises:
        RunError: A path is not a folder.
    """
    runs: list[RunResult] = []
    left_out: list[LeftOut] = []
    for path in paths:
        if not path.is_dir():
            raise RunError(f"{path} is not a folder; give run folders, or folders that hold them")
        folders, unreadable = _find_below(path)
        if not folders and not unreadable:
            left_out.append(LeftOut(path, "holds no run"))
        left_out += unreadable
        finished, others = read_finished(folders, unfinished=unfinished)
        runs += finished
        left_out += others
    usable, doubled = _drop_duplicates(runs)
    return Gathered(tuple(usable), (*left_out, *doubled))


def read_finished(
    folders: Iterable[Path], *, unfinished: bool = False
) -> tuple[list[RunResult], list[LeftOut]]:
    """Return the finished runs in these folders, and why the others cannot be used.

    Args:
        folders: Run folders.
        unfinished: Whether runs that are under way count as if they ended at their last round.
    """
    runs, left_out = [], []
    for folder in folders:
        try:
            run = read_run(folder)
        except RunError as error:
            left_out.append(LeftOut(folder, str(error).removeprefix(f"{folder} ")))
            continue
        if run.summary is not None:
            runs.append(run)
            continue
        used = unfinished and bool(run.rounds)
        if used:
            runs.append(replace(run, summary=summary_so_far(run)))
        state = f"{len(run.rounds)} of {run.recipe.rounds.number} rounds"
        state = state if used else f"is unfinished: {state}"
        failure = read_failure(folder)
        reason = f"{state}; it failed: {failure}" if failure else state
        left_out.append(LeftOut(folder, reason, used))
    return runs, left_out


def read_group(given: str) -> MethodRuns:
    """Return runs that differ by their seed only.

    Args:
        given: A run folder, a folder of runs, or a pattern that matches run folders.

    Raises:
        RunError: There is no finished run, or the runs differ in more than their seed.
    """
    path = Path(given)
    if RunFolder(path).is_run():
        run = read_run(path)
        if run.summary is None:
            raise RunError(f"{path} is unfinished; continue with: fedbb run --resume {path}")
        return MethodRuns(run.recipe.method.name, given, (run,))
    folders, unreadable = _find(given)
    runs, left_out = read_finished(folders)
    notes = [f"left out: {item}" for item in (*unreadable, *left_out)]
    if not runs:
        raise RunError(f"{given} holds no finished run; " + "; ".join(notes or [EXPECTED]))
    _check_settings(given, runs)
    return MethodRuns(runs[0].recipe.method.name, given, _by_seed(runs), tuple(notes))


def group(runs: Iterable[RunResult]) -> list[Comparison]:
    """Sort finished runs into comparisons; unfinished ones are left out.

    Settings that tell two comparisons of one data set apart become part of their titles.
    """
    finished = [run for run in runs if run.summary is not None]
    parts = _sort(finished, _federation_key)
    titles = [title for title, _ in parts]
    comparisons = []
    for (title, _), members in parts.items():
        rivals = [other[0] for (name, _), other in parts.items() if name == title]
        if titles.count(title) > 1:
            title = f"{title}; {settings_text(_distinct(members[0], rivals))}"
        comparisons.append(_compare(title, members))
    return comparisons


def baselines_of(method: str) -> tuple[str, ...]:
    """Return the methods that a method is compared with: FedAvg, then the control."""
    return {BASE: (), CONTROL: (BASE,)}.get(method, (BASE, CONTROL))


def settings_of(recipe: Recipe, *, method: bool = False) -> dict[str, Any]:
    """Return the settings that change results, flat, by dotted names, without the seed.

    Args:
        recipe: The resolved recipe of a run.
        method: Whether the method and its options belong to them.
    """
    # Fingerprints of the partition and of the first weights differ with the seed.
    excluded = {"name", "seed", "python"} | (set() if method else {"method"})
    found = dict(flatten(recipe.decisive.model_dump(exclude=excluded)))
    found.pop("evaluation.personal", None)  # further scores, which change none
    if recipe.model.by_client:
        del found["model.name"]
        found["model.by_client"] = ", ".join(_network(one) for one in recipe.model.networks)
    return found


def _network(model: ModelSpec) -> str:
    """Return the name of a network with its options."""
    options = ", ".join(f"{key} = {value}" for key, value in model.options.items())
    return f"{model.name} ({options})" if options else model.name


def _find_below(path: Path) -> tuple[list[Path], list[LeftOut]]:
    """Return the run folders at or below a folder, and the folders that cannot be listed."""
    unreadable: list[LeftOut] = []

    def note(error: OSError) -> None:
        unreadable.append(LeftOut(Path(error.filename), why_unreadable(error)))

    return list(find_runs(path, note)), unreadable


def _find(given: str) -> tuple[list[Path], list[LeftOut]]:
    path = Path(given)
    if path.is_dir():
        return _find_below(path)
    if not WILDCARDS & set(given):
        why = "is not a folder" if path.exists() else "does not exist"
        raise RunError(f"{given} {why}; {EXPECTED}")
    try:
        matches = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except ValueError as error:
        raise RunError(f"{given} is not a pattern: {error}") from error
    return [match for match in matches if _may_be_run(match)], []


def _may_be_run(path: Path) -> bool:
    """Return whether a folder is a run or cannot be read; reading it then says why."""
    try:
        return RunFolder(path).is_run()
    except RunError:
        return True


def _compare(title: str, members: Sequence[RunResult]) -> Comparison:
    _check_classes(members)
    parts = _sort(members, _method_key)
    names = [name for name, _ in parts]
    methods = []
    for (name, _), runs in parts.items():
        label = method_title(name)
        if names.count(name) > 1:
            label += f" ({settings_text(_method_settings(runs[0])) or 'defaults'})"
        methods.append(MethodRuns(name, label, _by_seed(runs)))
    methods.sort(key=lambda part: _rank(part.method))
    return Comparison(title, tuple(methods))


def _sort(
    runs: Iterable[RunResult], key: Callable[[RunResult], tuple[str, str]]
) -> dict[tuple[str, str], list[RunResult]]:
    parts: dict[tuple[str, str], list[RunResult]] = {}
    for run in runs:
        parts.setdefault(key(run), []).append(run)
    return parts


def _by_seed(runs: Sequence[RunResult]) -> tuple[RunResult, ...]:
    found: dict[int, RunResult] = {}
    for run in runs:
        first = found.setdefault(run.recipe.seed, run)
        if first is not run:
            differs = _difference(first, run)
            raise RunError(
                f"{first.path} and {run.path} hold the same run (seed {run.recipe.seed}); "
                "use one of them"
                if differs is None
                else f"{run.path} has the settings and the seed of {first.path}, but {differs}; "
                "use one of them, or keep such runs in folders of their own"
            )
    return tuple(found[seed] for seed in sorted(found))


def _check_settings(given: str, runs: Sequence[RunResult]) -> None:
    settings = [settings_of(run.recipe, method=True) for run in runs]
    for key in dict.fromkeys(key for found in settings for key in found):
        values = list(dict.fromkeys(str(found.get(key)) for found in settings))
        if len(values) > 1:
            shown = ", ".join(values[:SHOWN]) + (" …" if len(values) > SHOWN else "")
            raise RunError(
                f"{given} mixes runs that differ by more than their seed ({key}: {shown}); "
                "choose some of them by a pattern in quotes, such as 'runs/*fedbb*'"
            )


def _check_classes(runs: Sequence[RunResult]) -> None:
    first = runs[0]
    for run in runs:
        if run.federation.classes != first.federation.classes:
            raise RunError(
                f"{first.path} and {run.path} have the same recipe but different classes; "
                "the data changed between them, so they cannot be compared"
            )


def _difference(first: RunResult, run: RunResult) -> str | None:
    """Return in what two Python-made runs of equal settings and seed differ, None if in nothing."""
    own, other = run.recipe, first.recipe
    if not (isinstance(own, PythonRecipe) and isinstance(other, PythonRecipe)):
        return None
    if own.python.data != other.python.data:
        return "other data"
    if own.python.partition != other.python.partition:
        return "another partition"
    # Methods may add parts to a network, so their first weights need not be equal.
    if _method_key(run) == _method_key(first) and own.python != other.python:
        return "another network or other first weights"
    return None


def _drop_duplicates(runs: Iterable[RunResult]) -> tuple[list[RunResult], list[LeftOut]]:
    """Separate what `group` would reject: duplicates, and recipes whose data has changed."""
    first: dict[tuple[str, ...], RunResult] = {}
    usable: dict[Path, RunResult] = {}
    left_out = []
    for run in runs:
        federation = _federation_key(run)
        same_data = first.setdefault(federation, run)
        same_seed = first.setdefault((*federation, str(run.recipe.seed)), run)
        same_run = first.setdefault((*federation, *_method_key(run), str(run.recipe.seed)), run)
        if run.path.resolve() in usable:
            continue
        if same_data.federation.classes != run.federation.classes:
            left_out.append(LeftOut(run.path, f"has other classes than {same_data.path}"))
        elif (differs := _difference(same_seed, run) or _difference(same_run, run)) is not None:
            reason = f"has the settings and the seed of {same_seed.path}, but {differs}"
            left_out.append(LeftOut(run.path, f"{reason}; report it apart"))
        elif same_run is not run:
            left_out.append(LeftOut(run.path, f"holds the same run as {same_run.path}"))
        else:
            usable[run.path.resolve()] = run
    return list(usable.values()), left_out


def _federation_key(run: RunResult) -> tuple[str, str]:
    return data_title(run), _key(settings_of(run.recipe))


def _method_key(run: RunResult) -> tuple[str, str]:
    return run.recipe.method.name, _key(_method_settings(run))


def _method_settings(run: RunResult) -> dict[str, Any]:
    """Return the options of a run's method, and its loss if that is not the method's own."""
    method = run.recipe.method
    return method.options if method.loss is None else {**method.options, "loss": method.loss}


def _distinct(run: RunResult, rivals: Sequence[RunResult]) -> dict[str, Any]:
    """Return the settings of a run in which its rivals are not all the same."""
    own, others = settings_of(run.recipe), [settings_of(rival.recipe) for rival in rivals]
    return {
        key: value for key, value in own.items() if any(other.get(key) != value for other in others)
    }


def _key(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def _rank(method: str) -> int:
    known = list(METHODS)
    return known.index(method) if method in known else len(known)
