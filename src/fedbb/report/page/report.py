"""The page of `fedbb report` and `fedbb demo`: verdicts, tables, figures and settings of runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbb._util.table import Table, make_table, to_page
from fedbb._util.text import counted
from fedbb._version import __version__
from fedbb.errors import RunError
from fedbb.recipes.reader import flatten
from fedbb.records import FloatArray
from fedbb.report.groups import BASE, Comparison, Gathered, MethodRuns, group
from fedbb.report.method_comparison import MethodComparison, compare_methods
from fedbb.report.page.shell import Page, read_part, write_page
from fedbb.report.page.tables import class_scores, client_scores, report_tables
from fedbb.report.results import RunResult, class_counts, score_on_test, scores_by_round, summary_of
from fedbb.report.score_tables import all_tables
from fedbb.report.statistics import class_order, spread_columns, spread_of, subtract_by_seed
from fedbb.report.text import (
    TASK_METRICS,
    TASK_TITLES,
    UNITS,
    capitalize,
    method_description,
    method_title,
    metric_title,
    settings_text,
)
from fedbb.runs.metadata import KnownClient
from fedbb.secagg.audit import read_dp

TITLE = "Federated runs, compared"
EXAMPLES = 3


DECIMALS = 2
MOST_CLIENTS = 100
"""Clients in a figure; of more, the largest are drawn."""


def write_report(gathered: Gathered, out: Path, title: str = TITLE) -> list[MethodComparison]:
    """Write the report page of runs.

    Args:
        gathered: The runs, as `gather` finds them.
        out: The HTML file.
        title: The title of the page.

    Returns:
        What the page says, one entry for each comparison.
    """
    page, parts = make_report(gathered, out.parent, title)
    write_page(out, page)
    return parts


def make_report(
    gathered: Gathered, folder: Path, title: str = TITLE
) -> tuple[Page, list[MethodComparison]]:
    """Return the page and what it found, one entry for each comparison.

    Args:
        gathered: The runs.
        folder: Where the page will lie; paths on it start there.
        title: Its title.

    Raises:
        RunError: There are no runs.
    """
    if not gathered.runs:
        raise RunError(f"there is no finished run to report{_reasons(gathered)}")
    parts = [compare_methods(comparison) for comparison in group(gathered.runs)]
    page = Page(
        title=title,
        data=report_data(parts, gathered, folder),
        body=read_part("report.html"),
        style=read_part("report.css"),
        script=read_part("report.js"),
    )
    return page, parts


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
        "left_out": _folders(gathered, under_way=False),
        "under_way": _folders(gathered, under_way=True),
    }


def _folders(gathered: Gathered, *, under_way: bool) -> list[list[str]]:
    return [
        [str(item.path), item.reason] for item in gathered.left_out if item.under_way == under_way
    ]


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
        f"{counted(recipe.local.epochs, 'local epoch')} with {recipe.model.title}, "
        f"learning rate {recipe.local.lr:g}{optimizer}."
    )


def diagnostics(comparison: Comparison) -> list[str]:
    """Return what the runs noted of their clients, each remark with the runs it holds for."""
    found: dict[str, list[str]] = {}
    for method in comparison.methods:
        for run in method.runs:
            spent = read_dp(run.path)
            for remark in (*run.federation.notes, *([spent] if spent else [])):
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


def figure_data(comparison: Comparison) -> dict[str, Any]:
    """Return what the figures of a comparison are drawn from, scores in points."""
    return {
        "curves": [curves(comparison, metric) for metric in _metrics(comparison)],
        "classes": classes(comparison),
        "weights": [weights(part) for part in comparison.methods if is_reweighed(part)],
        "partition": partition(comparison.first),
        "clients": [clients(comparison, part) for part in comparison.methods],
        "cost": [cost(comparison, part) for part in comparison.methods],
    }


def curves(comparison: Comparison, metric: str) -> dict[str, Any]:
    """Return mean and deviation over seeds of a macro metric after each round, by method."""
    tables = [scores_by_round(part.runs, metric) for part in comparison.methods]
    return {"title": metric_title(metric), "methods": [_both(table) for table in tables]}


def classes(comparison: Comparison) -> dict[str, Any]:
    """Return the classes from head to tail, with each method's scores and gains over FedAvg."""
    order = class_order(class_counts(comparison.runs))
    facts = comparison.federation
    scores = {part.label: class_scores(comparison, part)[:, order] for part in comparison.methods}
    base = next((part for part in comparison.methods if part.method == BASE), None)
    return {
        "metric": metric_title(comparison.class_metric),
        "names": [facts.classes[index] for index in order],
        "cases": [_number(facts.class_counts[index], 1) for index in order],
        "scores": [_both(scores[part.label]) for part in comparison.methods],
        "gains": [
            None
            if base is None or part is base
            else _both(_paired(part, base, scores[part.label], scores[base.label]))
            for part in comparison.methods
        ],
    }


def is_reweighed(part: MethodRuns) -> bool:
    """Return whether a method weighs the clients of its first run otherwise than by size."""
    return any(
        abs(client.weight - client.weight_by_samples) > 1e-9
        for client in part.runs[0].federation.known
    )


def weights(part: MethodRuns) -> dict[str, Any]:
    """Return the weight of each client of the first seed by size and by the method, in percent."""
    chosen = sorted(largest(part.runs[0]), key=lambda client: client.dispersion or 0.0)
    return {
        "method": part.label,
        "clients": [client.client for client in chosen],
        "samples": [client.samples for client in chosen],
        "before": [_points(client.weight_by_samples) for client in chosen],
        "after": [_points(client.weight) for client in chosen],
    }


def partition(run: RunResult) -> dict[str, Any]:
    """Return how many cases of each class each client of a run holds."""
    chosen = largest(run)
    return {
        "seed": run.recipe.seed,
        "of": len(run.federation.clients),
        "classes": list(run.federation.classes),
        "clients": [client.client for client in chosen],
        "samples": [client.samples for client in chosen],
        "counts": [[_number(count, 1) for count in client.positives] for client in chosen],
    }


def clients(comparison: Comparison, part: MethodRuns) -> list[float | None]:
    """Return each client's score in the first seed, by the label mix of `client_scores`."""
    run = part.runs[0]
    shown = {client.client for client in largest(run)}
    scores = client_scores(run, class_scores(comparison, part)[0])
    pairs = zip(run.federation.known, scores, strict=True)
    return [_points(score) for client, score in pairs if client.client in shown]


def cost(comparison: Comparison, part: MethodRuns) -> list[float | None]:
    """Return the seconds of a run, and its final score with deviation, as means over seeds."""
    finals = (score_on_test(summary_of(run).final, comparison.metric) for run in part.runs)
    scores = spread_of(finals)
    seconds = spread_of(run.seconds for run in part.runs).mean
    return [_number(seconds, 3), _points(scores.mean), _points(scores.deviation)]


def largest(run: RunResult) -> list[KnownClient]:
    """Return the clients a figure shows, in their own order."""
    ranked = sorted(run.federation.known, key=lambda client: -client.samples)[:MOST_CLIENTS]
    return sorted(ranked, key=lambda client: client.client)


def _metrics(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys((comparison.metric, *TASK_METRICS[comparison.federation.task])))


def _paired(
    part: MethodRuns, base: MethodRuns, scores: FloatArray, rival: FloatArray
) -> FloatArray:
    """Return the differences on the seeds both have; a row of NaN where there is none."""
    own = dict(zip(part.seeds, scores, strict=True))
    gaps = subtract_by_seed(own, dict(zip(base.seeds, rival, strict=True)))
    return np.array([*gaps.values()]) if gaps else np.full((1, scores.shape[1]), np.nan)


def _both(table: FloatArray) -> list[list[float | None]]:
    means, deviations = spread_columns(table)
    return [[_points(value) for value in means], [_points(value) for value in deviations]]


def _points(share: float) -> float | None:
    return _number(100 * share, DECIMALS)


def _number(value: float, decimals: int) -> float | None:
    """Return a number as short as JSON can write it, None for NaN."""
    short = round(float(value), decimals)
    if short != short:
        return None
    return int(short) if short == int(short) else short
