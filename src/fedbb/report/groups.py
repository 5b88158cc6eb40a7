"""Runs sorted into comparisons: the same data and settings, several methods, several seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbb.errors import RunError
from fedbb.methods import METHODS
from fedbb.recipes.reader import flatten
from fedbb.recipes.spec import Recipe
from fedbb.report.result import FederationFacts, RunResult
from fedbb.report.wording import data_title, method_title, settings_text


@dataclass(frozen=True, eq=False)
class MethodRuns:
    """The finished runs of one method, one for each seed, in the order of the seeds."""

    method: str
    label: str
    runs: tuple[RunResult, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(run.recipe.seed for run in self.runs)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods on one data set with everything but method and seed alike."""

    title: str
    methods: tuple[MethodRuns, ...]

    @property
    def federation(self) -> FederationFacts:
        """The federation of the first seed."""
        return self.first.federation

    @property
    def first(self) -> RunResult:
        """The first seed's run of the first method."""
        return self.methods[0].runs[0]

    @property
    def metric(self) -> str:
        """The macro metric that the runs were judged by."""
        assert self.first.summary is not None
        return self.first.summary.metric


def group(runs: Iterable[RunResult]) -> list[Comparison]:
    """Sort finished runs into comparisons; unfinished ones are left out.

    Settings that tell two comparisons of one data set apart become part of their titles.
    """
    finished = [run for run in runs if run.summary is not None]
    parts = _sort(finished, lambda run: (data_title(run), _key(settings_of(run.recipe))))
    titles = [title for title, _ in parts]
    comparisons = []
    for (title, _), members in parts.items():
        rivals = [other[0] for (name, _), other in parts.items() if name == title]
        if titles.count(title) > 1:
            title = f"{title}; {settings_text(_distinct(members[0], rivals))}"
        comparisons.append(_compare(title, members))
    return comparisons


def _compare(title: str, members: Sequence[RunResult]) -> Comparison:
    _check_alike(members)
    parts = _sort(members, lambda run: (run.recipe.method.name, _key(run.recipe.method.options)))
    names = [name for name, _ in parts]
    methods = []
    for (name, _), runs in parts.items():
        label = method_title(name)
        if names.count(name) > 1:
            label += f" ({settings_text(runs[0].recipe.method.options) or 'defaults'})"
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
        seed = run.recipe.seed
        if seed in found:
            raise RunError(
                f"{found[seed].path} and {run.path} hold the same run (seed {seed}); "
                "report one of them"
            )
        found[seed] = run
    return tuple(found[seed] for seed in sorted(found))


def _check_alike(runs: Sequence[RunResult]) -> None:
    first = runs[0]
    for run in runs:
        if run.federation.classes != first.federation.classes:
            raise RunError(
                f"{first.path} and {run.path} have the same recipe but other classes; "
                "the data behind them changed, so they cannot be compared"
            )


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """Return all settings of a recipe but its seed, name and method, flat, by dotted names."""
    return dict(flatten(recipe.decisive.model_dump(exclude={"seed", "name", "method"})))


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
