"""Names, scores, differences and verdicts as text, the same in every table, page and terminal."""

from __future__ import annotations

import math
from typing import Any

from fedbb._util.table import UNDEFINED
from fedbb._util.text import counted
from fedbb.methods import HEADS, METHODS
from fedbb.records import Task
from fedbb.report.results import RunResult
from fedbb.report.statistics import Interval, PairedDifference, Spread, Verdict

METRIC_TITLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1": "macro F1",
    "auroc": "AUROC",
    "average_precision": "average precision",
    "recall": "recall",
    "brier": "Brier score",
    "ece": "ECE",
    "top_label_ece": "top-label ECE",
}
TASK_METRICS = {
    Task.MULTICLASS: ("balanced_accuracy", "accuracy", "f1"),
    Task.MULTILABEL: ("auroc", "average_precision", "balanced_accuracy"),
}
TASK_TITLES = {Task.MULTICLASS: "multi-class", Task.MULTILABEL: "multi-label"}
# Chance has a recall and an average precision near the class's share; an AUROC would look even.
CLASS_METRIC = {Task.MULTICLASS: "recall", Task.MULTILABEL: "average_precision"}


UNITS = (
    "Scores are on test data, in points of 100: mean ± sample standard deviation over seeds. "
    "Differences are paired by seed and given with the 95 % interval of Student's t for their "
    "mean, in brackets. A method is called ahead or behind only where this interval excludes 0. "
    "“2 of 3 seeds” counts the seeds whose difference has the sign of the mean."
)


def metric_title(metric: str) -> str:
    """Return the name of a metric in running text."""
    return METRIC_TITLES.get(metric, metric.replace("_", " "))


def method_title(name: str) -> str:
    """Return the name a method gives itself; a method not known here keeps the recipe's name.

    >>> method_title("fedavg+lda-head")
    'FedAvg+LDA head'
    """
    base, _, head = name.rpartition("+")
    if head in HEADS:
        return f"{method_title(base)}+{head.replace('lda', 'LDA').replace('-', ' ')}"
    return METHODS[name]().name if name in METHODS else name


def method_description(name: str) -> str:
    """Return what a method does, in one sentence."""
    base, _, head = name.rpartition("+")
    if head in HEADS:
        own = (HEADS[head].__doc__ or "").strip().split("\n")[0]
        return f"{method_description(base)} Classifier: {own}"
    text = METHODS[name].__doc__ if name in METHODS else None
    return (text or "").strip().split("\n")[0]


def data_title(run: RunResult) -> str:
    """Return the data set with what was done to it, such as its long tail and its partition."""
    data = run.recipe.data
    parts = [run.federation.data]
    if data.long_tail is not None:
        parts.append(f"long tail {data.long_tail:g}")
    if data.label_noise > 0:
        parts.append(f"{data.label_noise_kind} label noise {data.label_noise:g}")
    partition = data.partition.kind.replace("-", " ")
    if data.partition.concentration is not None:
        partition += f" {data.partition.concentration:g}"
    if data.partition.column is not None:
        partition += f" {data.partition.column}"
    parts += [partition, counted(len(run.federation.clients), "client")]
    return ", ".join(parts)


def score_text(spread: Spread, decimals: int = 1) -> str:
    """Return mean ± deviation of a score in points, of which 100 are perfect.

    >>> score_text(Spread(0.8512, 0.0123, 5))
    '85.1 ± 1.2'
    """
    return spread_text(spread, decimals, scale=100)


def spread_text(spread: Spread, decimals: int = 2, scale: float = 1.0) -> str:
    """Return mean ± deviation, by default with two decimals, as papers print them.

    >>> spread_text(Spread(71.234, 0.4511, 3))
    '71.23 ± 0.45'
    """
    if math.isnan(spread.mean):
        return UNDEFINED
    mean, deviation = scale * spread.mean, scale * spread.deviation
    margin = "" if math.isnan(deviation) else f" ± {deviation:.{decimals}f}"
    return f"{mean:.{decimals}f}{margin}"


def capitalize(text: str) -> str:
    """Return a text that begins with a capital, its other letters as they were."""
    return text[:1].upper() + text[1:]


def settings_text(settings: dict[str, Any]) -> str:
    """Return settings as `key = value`, separated by commas."""
    return ", ".join(f"{key} = {value}" for key, value in settings.items())


def signed(value: float, decimals: int = 1) -> str:
    """Return a number with its sign; one that rounds to zero has none.

    >>> signed(-1.257, 2), signed(0.001), signed(float("nan"))
    ('−1.26', '0.0', '–')
    """
    if math.isnan(value):
        return UNDEFINED
    text = f"{abs(value):.{decimals}f}"
    sign = "" if float(text) == 0 else "−" if value < 0 else "+"
    return sign + text


def interval_text(interval: Interval, scale: float = 1.0, decimals: int = 1) -> str:
    """Return the ends of an interval in brackets, or a dash where there is none.

    >>> interval_text(Interval(-0.0048, 0.0448), scale=100)
    '[−0.5, +4.5]'
    """
    if math.isnan(interval.low):
        return UNDEFINED
    ends = (scale * interval.low, scale * interval.high)
    # An end that rounds to zero keeps its sign: it decides the verdict.
    return f"[{', '.join(f'{end:+.{decimals}f}' for end in ends)}]".replace("-", "−")


def difference_text(difference: PairedDifference, scale: float = 1.0, decimals: int = 1) -> str:
    """Return mean, interval, verdict, and how many seeds have the sign of the mean.

    Args:
        difference: What to describe.
        scale: Factor from its unit to points.
        decimals: Digits behind the point.
    """
    verdict = difference.verdict
    if verdict in (Verdict.NOT_COMPARABLE, Verdict.EQUAL):
        return str(verdict)
    mean = signed(scale * difference.spread.mean, decimals)
    if verdict is Verdict.ONE_SEED:
        return f"{mean}, {verdict}"
    interval = interval_text(difference.interval, scale, decimals)
    seeds = f"{_agreeing(difference)} of {len(difference.seeds)} seeds"
    return f"{mean} {interval}, {verdict} ({seeds})"


def verdict_clause(difference: PairedDifference, rival: str, unit: str) -> str:
    """Return the predicate of a sentence whose subject is the first of the two.

    Args:
        difference: Of two scores from 0 to 1.
        rival: The second of the two.
        unit: What the points are of, such as "points of AUROC".
    """
    number, mean = len(difference.seeds), 100 * difference.spread.mean
    # A difference below one point would lose its second digit.
    decimals = 2 if abs(mean) < 1 else 1
    interval = interval_text(difference.interval, 100, decimals)
    side = "lower" if difference.spread.mean < 0 else "higher"
    evidence = f"95 % interval {interval}, {side} on {_agreeing(difference)} of {number} seeds"
    match difference.verdict:
        case Verdict.AHEAD:
            return f"is ahead of {rival} by {abs(mean):.{decimals}f} {unit} ({evidence})"
        case Verdict.BEHIND:
            return f"is behind {rival} by {abs(mean):.{decimals}f} {unit} ({evidence})"
        case Verdict.UNCLEAR:
            size = f"{signed(mean, decimals)} {unit}"
            return f"shows no clear difference from {rival} ({size}, {evidence})"
        case Verdict.EQUAL:
            return f"scores the same as {rival} on all {number} seeds"
        case Verdict.ONE_SEED:
            size = f"{signed(mean, decimals)} {unit}"
            return f"differs from {rival} by {size} on one seed, which allows no verdict"
        case Verdict.NOT_COMPARABLE:
            return f"is not comparable with {rival}: no seed has a score of both"


def _agreeing(difference: PairedDifference) -> int:
    """Return on how many seeds the difference has the sign of its mean."""
    return difference.behind if difference.spread.mean < 0 else difference.ahead
