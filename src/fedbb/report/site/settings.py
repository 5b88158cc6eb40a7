"""Settings and environment of every run: what all have in common, and in what each differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedbb.recipes.reader import flatten
from fedbb.report.results import RunResult, summary_of

Words = dict[str, str]


def settings_data(runs: Sequence[RunResult]) -> dict[str, Any]:
    """Return the common settings once, and those of each run that are not common."""
    settings = [run_settings(run) for run in runs]
    machines = [dict(run.environment) for run in runs]
    common, same = common_part(settings), common_part(machines)
    return {
        "settings": common,
        "environment": same,
        "runs": [
            {
                "name": run.path.name,
                "path": str(run.path),
                "sha256": summary_of(run).sha256,
                "settings": rest(own, common),
                "environment": rest(machine, same),
            }
            for run, own, machine in zip(runs, settings, machines, strict=True)
        ],
    }


def run_settings(run: RunResult) -> Words:
    """Return all settings of a run but its name by dotted names, as words."""
    values = flatten(run.recipe.model_dump(mode="json", exclude={"name"}))
    return {key: word(value) for key, value in dict(values).items()}


def word(value: Any) -> str:
    """Return a setting as a reader of recipes knows it."""
    if value is None or value == {}:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)


def common_part(tables: Sequence[Mapping[str, str]]) -> Words:
    """Return the entries that all tables share."""
    first, *others = tables
    return {
        key: value
        for key, value in first.items()
        if all(other.get(key) == value for other in others)
    }


def rest(own: Mapping[str, str], common: Mapping[str, str]) -> Words:
    """Return the entries of a table that are not common to all."""
    return {key: value for key, value in own.items() if key not in common}
