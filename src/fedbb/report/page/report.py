"""The page of `fedbb report` and `fedbb demo`: verdicts, tables, figures and settings of runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbb._util.table import Table, make_table, to_page
from fedbb._util.text import counted
from fedbb._version import __version__
from fedbb.errors import RunError
from fedbb.recipes.reader import flatten
from fedbb.report.groups import Comparison, Gathered, group
from fedbb.report.labels import (
    TASK_TITLES,
    capitalize,
    method_description,
    method_title,
    metric_title,
    settings_text,
)
from fedbb.report.method_comparison import MethodComparison, compare_methods
from fedbb.report.page.figures import figure_data
from fedbb.report.page.shell import Page, read_part, write_page
from fedbb.report.page.tables import report_tables
from fedbb.report.prose import UNITS
from fedbb.report.results import RunResult, summary_of
from fedbb.report.score_tables import all_tables

TITLE = "Federated runs, compared"
EXAMPLES = 3


def write_report(gathered: Gathered, out: Path, title: str = TITLE) -> list[MethodComparison]:
    """Write the page and return what it found, one entry for each comparison."""
    if not gathered.runs:
        raise RunError(f"there is no finished run to report{_reasons(gathered)}")
    parts = [compare_methods(comparison) for comparison in group(gathered.runs)]
    write_page(
        out,
        Page(
            title=title,
            data=report_data(parts, gathered, out.parent),
            body=read_part("report.html"),
            style=read_part("report.css"),
            script=read_part("report.js"),
        ),
    )
    return parts


def report_data(
    parts: Sequence[MethodComparison], gathered: Gathered, folder: Path
) -> dict[str, Any]:
    """Return all that a page in this folder shows, as plain values."""
    ordered = [run for part in parts for method in part.comparison.methods for run in method.runs]
    tables = report_tables(parts)
    return {
        "format": "fedbb-report-1",
        "made_with": f"fedbb {__version__}",
        "units": UNITS,
        "comparisons": [_comparison(part) for part in parts],
        "tables": [{"name": name, **to_page(table)} for name, table in tables.items()],
        "methods": to_page(methods_table(ordered)),
        "runs": settings_data(ordered, folder),
        "left_out": [[str(item.path), item.reason] for item in gathered.left_out],
    }


def _comparison(part: MethodComparison) -> dict[str, Any]:
    comparison = part.comparison
    return {
        "title": comparison.title,
        "setting": setting(comparison),
        "verdict": list(part.sentences),
        "remarks": diagnostics(comparison),
        "metric": metric_title(comparison.metric),
        "methods": [method.label for method in comparison.methods],
        "details": score_details(comparison),
        **figure_data(comparison),
    }


def score_details(comparison: Comparison) -> list[dict[str, Any]]:
    """Return all scores of the first run of each method, as tables."""
    firsts = [(method.label, method.runs[0]) for method in comparison.methods]
    return [
        {
            "name": f"{label}, seed {run.recipe.seed}",
            "tables": [to_page(table) for table in all_tables(run.scores["final"])],
        }
        for label, run in firsts
        if run.scores
    ]


def setting(comparison: Comparison) -> str:
    """Return data, clients and training of a comparison in one sentence."""
    facts, recipe = comparison.federation, comparison.first.recipe
    at_most = "at most " if recipe.rounds.stops_early else ""
    optimizer = "" if recipe.local.optimizer == "sgd" else f" with {recipe.local.optimizer}"
    return (
        f"{facts.train:,} training samples, {len(facts.classes)} classes "
        f"({TASK_TITLES[facts.task]}), {counted(len(facts.clients), 'client')}; "
        f"{at_most}{recipe.rounds.number:,} rounds of "
        f"{counted(recipe.local.epochs, 'local epoch')} with {recipe.model.name}, "
        f"learning rate {recipe.local.lr:g}{optimizer}."
    )


def diagnostics(comparison: Comparison) -> list[str]:
    """Return what the runs noted of their clients, each remark with the runs it holds for."""
    found: dict[str, list[str]] = {}
    for method in comparison.methods:
        for run in method.runs:
            for remark in run.federation.notes:
                found.setdefault(remark, []).append(f"{method.label}, seed {run.recipe.seed}")
    return [f"{capitalize(remark)} ({'; '.join(where)})." for remark, where in found.items()]


def methods_table(runs: Iterable[RunResult]) -> Table:
    """Return what each method does, with the options that it was given."""
    rows = {
        (
            method_title(run.recipe.method.name),
            method_description(run.recipe.method.name),
            settings_text(run.recipe.method.options) or "defaults",
        ): None
        for run in runs
    }
    return make_table(("method", "description", "options"), rows, words=3)


def settings_data(runs: Sequence[RunResult], folder: Path) -> dict[str, Any]:
    """Return settings and environment: what all runs share, and what each run has of its own."""
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
                "command": repeat_command(run, folder),
                "settings": rest(own, common),
                "environment": rest(machine, same),
            }
            for run, own, machine in zip(runs, settings, machines, strict=True)
        ],
    }


def run_settings(run: RunResult) -> dict[str, str]:
    """Return all settings of a run but its name by dotted names, as words."""
    values = flatten(run.recipe.model_dump(mode="json", exclude={"name"}))
    return {key: word(value) for key, value in dict(values).items()}


def word(value: Any) -> str:
    """Return a setting as a reader of recipes knows it."""
    if value is None or value == {}:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)


def common_part(tables: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the entries that all tables share."""
    first, *others = tables
    return {
        key: value
        for key, value in first.items()
        if all(other.get(key) == value for other in others)
    }


def rest(own: Mapping[str, str], common: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of a table that are not common to all."""
    return {key: value for key, value in own.items() if key not in common}


def repeat_command(run: RunResult, folder: Path) -> str:
    """Return the command that repeats a run, to be typed in this folder."""
    where, here = run.path.resolve(), folder.resolve()
    where = where.relative_to(here) if where.is_relative_to(here) else where
    recipe, again = where / "recipe.json", Path("again") / run.path.name
    return f"fedbb run {shlex.quote(str(recipe))} --out {shlex.quote(str(again))}"


def _reasons(gathered: Gathered) -> str:
    shown = [f"{item.path} {item.reason}" for item in gathered.left_out[:EXAMPLES]]
    more = len(gathered.left_out) - len(shown)
    return "".join(f"; {text}" for text in shown) + (f"; and {more} more" if more > 0 else "")
