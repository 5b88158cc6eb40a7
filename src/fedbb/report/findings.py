"""What one comparison finds, worked out once for the page, Markdown and JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedbb.report.groups import Comparison
from fedbb.report.result import RunResult
from fedbb.report.tables import Difference, Row, compare, summarize, summary_of
from fedbb.report.text import best_table, difference_table, escape, final_table, markdown_table
from fedbb.report.verdict import outcome, verdicts
from fedbb.report.wording import TASK_METRICS

UNITS = (
    "Scores are on test data, in points of which 100 are perfect: mean ± sample standard deviation "
    "over seeds. Methods are compared after the last round, on the same seeds. A tie is called "
    "when seeds disagree, or when the mean difference is smaller than its standard deviation."
)
NO_RIVAL = "Nothing to compare: FedAvg, or any method beside it, is missing."


@dataclass(frozen=True, eq=False)
class Findings:
    """A comparison with its rows, its differences and their sentences."""

    comparison: Comparison
    rows: tuple[Row, ...]
    differences: tuple[Difference, ...]
    sentences: tuple[str, ...]


def work_out(comparison: Comparison) -> Findings:
    """Return what a comparison finds by its own metric and the others of its task."""
    others = TASK_METRICS[comparison.federation.task]
    metrics = list(dict.fromkeys((comparison.metric, *others)))
    differences = compare([comparison], metrics)
    judged = [item for item in differences if item.metric == comparison.metric]
    return Findings(
        comparison,
        rows=tuple(summarize([comparison], metrics)),
        differences=tuple(differences),
        sentences=tuple(verdicts(judged)) or (NO_RIVAL,),
    )


def as_markdown(title: str, parts: Sequence[Findings], unfinished: Sequence[str] = ()) -> str:
    """Return all results as one Markdown text."""
    blocks = [f"# {escape(title)}", UNITS]
    for part in parts:
        blocks.append(f"## {escape(part.comparison.title)}")
        blocks += [escape(sentence) for sentence in part.sentences]
        blocks += [markdown_table(final_table(part.rows))]
        if part.differences:
            blocks.append(markdown_table(difference_table(part.differences)))
        blocks.append(markdown_table(best_table(part.rows)))
    blocks += [f"Left out because unfinished: {escape(name)}." for name in unfinished]
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def as_json(parts: Sequence[Findings], unfinished: Sequence[str] = ()) -> dict[str, Any]:
    """Return all results as plain values, with None for what is undefined."""
    return {
        "format": "fedbb-results-1",
        "comparisons": [_plain_part(part) for part in parts],
        "unfinished": list(unfinished),
    }


def _plain_part(part: Findings) -> dict[str, Any]:
    comparison = part.comparison
    return {
        "data": comparison.title,
        "metric": comparison.metric,
        "verdict": list(part.sentences),
        "rows": [_plain(row) for row in part.rows],
        "differences": [_plain(item) | {"outcome": outcome(item)} for item in part.differences],
        "runs": [_plain_run(run) for method in comparison.methods for run in method.runs],
    }


def _plain_run(run: RunResult) -> dict[str, Any]:
    return {
        "run": run.path.name,
        "method": run.recipe.method.name,
        "options": run.recipe.method.options,
        "seed": run.recipe.seed,
        "seconds": round(run.seconds, 3),
        "sha256": summary_of(run).sha256,
    }


def _plain(record: Row | Difference) -> dict[str, Any]:
    values = dataclasses.asdict(record)
    return {key: _without_nan(value) for key, value in values.items()}


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
