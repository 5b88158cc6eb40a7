"""Names of data sets, methods and metrics, and scores as text, in tables, plots and pages."""

from __future__ import annotations

import math
from typing import Any

from fedbb._util.table import UNDEFINED
from fedbb._util.text import counted
from fedbb.methods import METHODS
from fedbb.records import Task
from fedbb.report.results import RunResult
from fedbb.report.statistics import Spread

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


def metric_title(metric: str) -> str:
    """Return the name of a metric in running text."""
    return METRIC_TITLES.get(metric, metric.replace("_", " "))


def method_title(name: str) -> str:
    """Return the name a method gives itself; a method not known here keeps the recipe's name."""
    return METHODS[name]().name if name in METHODS else name


def method_description(name: str) -> str:
    """Return what a method does, in one sentence."""
    text = METHODS[name].__doc__ if name in METHODS else None
    return (text or "").strip().split("\n")[0]


def data_title(run: RunResult) -> str:
    """Return the data set with what was done to it, such as its long tail and its partition."""
    data = run.recipe.data
    parts = [run.federation.data]
    if data.long_tail is not None:
        parts.append(f"long tail {data.long_tail:g}")
    division = data.partition.kind.replace("-", " ")
    if data.partition.concentration is not None:
        division += f" {data.partition.concentration:g}"
    if data.partition.column is not None:
        division += f" {data.partition.column}"
    parts += [division, counted(len(run.federation.clients), "client")]
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
