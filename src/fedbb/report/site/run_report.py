"""The report page on runs: words, tables and figures in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fedbb
from fedbb.errors import RunError
from fedbb.report.groups import Comparison, Gathered, group
from fedbb.report.method_comparison import MethodComparison, compare_methods
from fedbb.report.prose import UNITS
from fedbb.report.site.drawings import drawings_of
from fedbb.report.site.settings import settings_data
from fedbb.report.site.sheets import sheets_of
from fedbb.report.site.shell import Page, read_part, write_page
from fedbb.report.wording import capitalize, metric_title

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
            data=report_data(parts, gathered),
            body=read_part("report.html"),
            style=read_part("report.css"),
            script=read_part("report.js"),
        ),
    )
    return parts


def report_data(parts: Sequence[MethodComparison], gathered: Gathered) -> dict[str, Any]:
    """Return all that the page shows, as plain values."""
    ordered = [run for part in parts for method in part.comparison.methods for run in method.runs]
    return {
        "format": "fedbb-report-1",
        "made_with": f"fedbb {fedbb.__version__}",
        "units": UNITS,
        "comparisons": [_comparison(part) for part in parts],
        "sheets": [sheet.plain() for sheet in sheets_of(parts)],
        "runs": settings_data(ordered),
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
        **drawings_of(comparison),
    }


def setting(comparison: Comparison) -> str:
    """Return data, clients and plan of a comparison in one sentence."""
    facts, recipe = comparison.federation, comparison.first.recipe
    epochs, clients = recipe.local.epochs, facts.number
    return (
        f"{facts.train:,} training samples of {len(facts.classes)} classes "
        f"({'one each' if facts.task == 'multiclass' else 'any number each'}), held by "
        f"{clients:,} client{'s' if clients != 1 else ''}; {recipe.rounds.number:,} rounds of "
        f"{epochs} local epoch{'s' if epochs != 1 else ''} with {recipe.model.name}, "
        f"learning rate {recipe.local.lr:g}."
    )


def diagnostics(comparison: Comparison) -> list[str]:
    """Return what the runs noted of their clients, each remark with the runs it holds for."""
    found: dict[str, list[str]] = {}
    for method in comparison.methods:
        for run in method.runs:
            for remark in run.federation.notes:
                found.setdefault(remark, []).append(f"{method.label}, seed {run.recipe.seed}")
    return [f"{capitalize(remark)} ({'; '.join(where)})." for remark, where in found.items()]


def _reasons(gathered: Gathered) -> str:
    shown = [f"{item.path} {item.reason}" for item in gathered.left_out[:EXAMPLES]]
    more = len(gathered.left_out) - len(shown)
    return "".join(f"; {text}" for text in shown) + (f"; and {more} more" if more > 0 else "")
