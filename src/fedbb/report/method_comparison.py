"""The methods of one federation: scores over seeds, differences to FedAvg and control, verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedbb._util.files import finite_or_none
from fedbb._util.table import Table, escape_markdown, make_table, to_markdown
from fedbb.report.groups import CONTROL, Comparison, MethodRuns, baselines_of
from fedbb.report.results import RunResult, score_on_test, summary_of
from fedbb.report.statistics import PairedDifference, Spread, Verdict, paired_difference, spread_of
from fedbb.report.text import (
    TASK_METRICS,
    UNITS,
    difference_text,
    metric_title,
    score_text,
    verdict_clause,
)

NO_RIVAL = "Nothing to compare: FedAvg, or any method beside it, is missing."
# What the control adds to a gain over FedAvg; it takes the same steps without re-weighting.
CONTROL_MEANS = {
    Verdict.AHEAD: "The size of its steps alone does not explain the gain.",
    Verdict.UNCLEAR: "These runs do not show whether more than the size of its steps matters.",
    Verdict.EQUAL: "The size of its steps explains the gain.",
    Verdict.BEHIND: "Steps of the same size without re-weighting gain more.",
}


@dataclass(frozen=True)
class MethodScore:
    """One method's test score by one metric, over seeds.

    `final` is after the last round; `best` is of the round with the highest score on `chosen_on`.
    """

    data: str
    method: str
    metric: str
    final: Spread
    best: Spread
    chosen_on: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class MethodDifference:
    """A method's final test score minus another's on the same seeds."""

    data: str
    method: str
    against: str
    metric: str
    paired: PairedDifference
    is_control: bool

    @property
    def text(self) -> str:
        """Mean, interval and verdict in points."""
        return difference_text(self.paired, scale=100)


@dataclass(frozen=True, eq=False)
class MethodComparison:
    """A comparison with its scores, its differences and the verdict on each method."""

    comparison: Comparison
    rows: tuple[MethodScore, ...]
    differences: tuple[MethodDifference, ...]
    sentences: tuple[str, ...]


def compare_methods(comparison: Comparison) -> MethodComparison:
    """Compare methods by the metric of their runs, which decides the verdict, and by others."""
    others = TASK_METRICS[comparison.federation.task]
    metrics = list(dict.fromkeys((comparison.metric, *others)))
    differences = differences_of(comparison, metrics)
    judged = [item for item in differences if item.metric == comparison.metric]
    return MethodComparison(
        comparison,
        rows=tuple(scores_of(comparison, metrics)),
        differences=tuple(differences),
        sentences=tuple(verdicts(judged)) or (NO_RIVAL,),
    )


def scores_of(comparison: Comparison, metrics: Sequence[str]) -> list[MethodScore]:
    """Return the scores of each method by each metric."""
    return [_score(comparison, part, metric) for part in comparison.methods for metric in metrics]


def differences_of(comparison: Comparison, metrics: Sequence[str]) -> list[MethodDifference]:
    """Return the differences of each method to FedAvg, and to the control."""
    return [
        _difference(comparison.title, part, other, metric)
        for part in comparison.methods
        for name in baselines_of(part.method)
        for other in comparison.methods
        if other.method == name
        for metric in metrics
    ]


def verdicts(differences: Sequence[MethodDifference]) -> list[str]:
    """Return a sentence or two for each method from its differences by one metric, control last."""
    controls = {difference.against for difference in differences if difference.is_control}
    methods = dict.fromkeys(difference.method for difference in differences)
    return [
        verdict([difference for difference in differences if difference.method == method])
        for method in sorted(methods, key=lambda method: method in controls)
    ]


def verdict(differences: Sequence[MethodDifference]) -> str:
    """Return the verdict on one method from its differences, FedAvg before the control."""
    outcomes = [item.paired.verdict for item in differences]
    clauses: list[str] = []
    for item in differences:
        rival = f"the control {item.against}" if item.is_control else item.against
        unit = "points" if clauses else f"points of {metric_title(item.metric)}"
        clauses.append(verdict_clause(item.paired, rival, unit))
    text = f"{differences[0].method} {clauses[0]}"
    for before, now, clause in zip(outcomes, outcomes[1:], clauses[1:], strict=False):
        text += f", {'and' if now is before else 'but'} {clause}"
    return f"{text}. {_gain_by_control(differences)}".strip()


def final_table(rows: Sequence[MethodScore]) -> Table:
    """Return the scores after the last round, one line a method, one column a metric."""
    return _score_table(rows, "Test scores after the last round", lambda row: row.final)


def best_table(rows: Sequence[MethodScore]) -> Table:
    """Return the scores of each run's best round, with the data it was chosen on."""
    chosen_on = rows[0].chosen_on
    caption = f"Test scores of each run's best round, chosen on {chosen_on} data"
    if chosen_on == "test":
        caption += " and therefore optimistic"
    return _score_table(rows, caption, lambda row: row.best)


def difference_table(differences: Sequence[MethodDifference]) -> Table:
    """Return the paired differences in points, one line a pair of methods, one column a metric."""
    metrics = list(dict.fromkeys(item.metric for item in differences))
    cells = {(item.method, item.against, item.metric): item.text for item in differences}
    lines = tuple(
        (f"{method} − {against}", *(cells[method, against, metric] for metric in metrics))
        for method, against in dict.fromkeys((item.method, item.against) for item in differences)
    )
    head = ("difference", *(metric_title(metric) for metric in metrics))
    return make_table(head, lines, "Paired differences after the last round")


def as_markdown(
    title: str, parts: Sequence[MethodComparison], unfinished: Sequence[str] = ()
) -> str:
    """Return all results as one Markdown text."""
    blocks = [f"# {escape_markdown(title)}", UNITS]
    for part in parts:
        blocks.append(f"## {escape_markdown(part.comparison.title)}")
        blocks += [escape_markdown(sentence) for sentence in part.sentences]
        blocks += [to_markdown(final_table(part.rows), captioned=True)]
        if part.differences:
            blocks.append(to_markdown(difference_table(part.differences), captioned=True))
        blocks.append(to_markdown(best_table(part.rows), captioned=True))
    blocks += [f"Left out because unfinished: {escape_markdown(name)}." for name in unfinished]
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def as_json(parts: Sequence[MethodComparison], unfinished: Sequence[str] = ()) -> dict[str, Any]:
    """Return all results as plain values, with None for what is undefined."""
    return {
        "format": "fedbb-results-1",
        "comparisons": [_plain_part(part) for part in parts],
        "unfinished": list(unfinished),
    }


def _score(comparison: Comparison, part: MethodRuns, metric: str) -> MethodScore:
    summaries = [summary_of(run) for run in part.runs]
    return MethodScore(
        data=comparison.title,
        method=part.label,
        metric=metric,
        final=spread_of(score_on_test(summary.final, metric) for summary in summaries),
        best=spread_of(score_on_test(summary.best, metric) for summary in summaries),
        chosen_on=summaries[0].chosen_on,
        seeds=part.seeds,
    )


def _difference(title: str, part: MethodRuns, other: MethodRuns, metric: str) -> MethodDifference:
    def final(run: RunResult) -> float:
        return score_on_test(summary_of(run).final, metric)

    return MethodDifference(
        data=title,
        method=part.label,
        against=other.label,
        metric=metric,
        paired=paired_difference(part.scores(final), other.scores(final)),
        is_control=other.method == CONTROL,
    )


def _gain_by_control(differences: Sequence[MethodDifference]) -> str:
    """Return what the control adds, where a method is ahead of FedAvg itself."""
    controls = [item.paired.verdict for item in differences if item.is_control]
    if len(controls) != 1 or differences[0].paired.verdict is not Verdict.AHEAD:
        return ""
    return CONTROL_MEANS.get(controls[0], "")


def _score_table(
    rows: Sequence[MethodScore], caption: str, pick: Callable[[MethodScore], Spread]
) -> Table:
    metrics = list(dict.fromkeys(row.metric for row in rows))
    seeds = {row.method: len(row.seeds) for row in rows}
    texts = {(row.method, row.metric): score_text(pick(row)) for row in rows}
    lines = tuple(
        (method, *(texts[method, metric] for metric in metrics), str(number))
        for method, number in seeds.items()
    )
    head = ("method", *(metric_title(metric) for metric in metrics), "seeds")
    return make_table(head, lines, caption)


def _plain_part(part: MethodComparison) -> dict[str, Any]:
    comparison = part.comparison
    return {
        "data": comparison.title,
        "metric": comparison.metric,
        "verdict": list(part.sentences),
        "rows": [finite_or_none(row) for row in part.rows],
        "differences": [_plain_difference(item) for item in part.differences],
        "runs": [_plain_run(run) for run in comparison.runs],
    }


def _plain_difference(item: MethodDifference) -> dict[str, Any]:
    plain: dict[str, Any] = finite_or_none(item)
    paired: dict[str, Any] = plain.pop("paired")
    return plain | paired | {"outcome": str(item.paired.verdict)}


def _plain_run(run: RunResult) -> dict[str, Any]:
    return {
        "run": run.path.name,
        "method": run.recipe.method.name,
        "options": run.recipe.method.options,
        "seed": run.recipe.seed,
        "seconds": round(run.seconds, 3),
        "sha256": summary_of(run).sha256,
        "scores": run.scores["final"].to_json() if run.scores else None,
    }
