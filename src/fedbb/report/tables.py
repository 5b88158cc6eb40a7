"""Scores over seeds as rows, and paired differences against FedAvg and its control."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedbb.report.groups import Comparison, MethodRuns
from fedbb.report.result import RunResult, ScoredRound, Summary
from fedbb.report.spread import Spread, spread_of

BASE = "fedavg"
CONTROL = "fedavg-scaled"


@dataclass(frozen=True)
class Row:
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
class Difference:
    """A method's final test score minus another's on the same seeds.

    `ahead` and `behind` count the seeds on which the method scores higher and lower.
    """

    data: str
    method: str
    against: str
    metric: str
    spread: Spread
    ahead: int
    behind: int
    is_control: bool


def summarize(groups: Iterable[Comparison], metrics: Sequence[str]) -> list[Row]:
    """Return a row for each data set, method and metric, in this order."""
    return [
        _row(group, part, metric)
        for group in groups
        for part in group.methods
        for metric in metrics
    ]


def compare(groups: Iterable[Comparison], metrics: Sequence[str]) -> list[Difference]:
    """Return the differences of each method against FedAvg, and against the control."""
    return [
        _difference(group.title, part, other, metric)
        for group in groups
        for part in group.methods
        for other in _rivals(group, part)
        for metric in metrics
    ]


def score_on_test(scored: ScoredRound, metric: str) -> float:
    """Return a macro metric on test data; NaN where it is undefined or was not scored."""
    return scored.scores["test"].macro.get(metric, float("nan"))


def summary_of(run: RunResult) -> Summary:
    """Return the summary of a run that is known to be finished."""
    assert run.summary is not None
    return run.summary


def _row(group: Comparison, part: MethodRuns, metric: str) -> Row:
    summaries = [summary_of(run) for run in part.runs]
    return Row(
        data=group.title,
        method=part.label,
        metric=metric,
        final=spread_of(score_on_test(summary.final, metric) for summary in summaries),
        best=spread_of(score_on_test(summary.best, metric) for summary in summaries),
        chosen_on=summaries[0].chosen_on,
        seeds=part.seeds,
    )


def _rivals(group: Comparison, part: MethodRuns) -> list[MethodRuns]:
    names = {BASE: (), CONTROL: (BASE,)}.get(part.method, (BASE, CONTROL))
    return [other for name in names for other in group.methods if other.method == name]


def _difference(title: str, part: MethodRuns, other: MethodRuns, metric: str) -> Difference:
    own, rival = _final_by_seed(part, metric), _final_by_seed(other, metric)
    gaps = [own[seed] - rival[seed] for seed in own if seed in rival]
    return Difference(
        data=title,
        method=part.label,
        against=other.label,
        metric=metric,
        spread=spread_of(gaps),
        ahead=sum(gap > 0 for gap in gaps),
        behind=sum(gap < 0 for gap in gaps),
        is_control=other.method == CONTROL,
    )


def _final_by_seed(part: MethodRuns, metric: str) -> dict[int, float]:
    return {run.recipe.seed: score_on_test(summary_of(run).final, metric) for run in part.runs}
