"""Which round was best, by one macro metric."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from fedbb.records import Task

DEFAULT_METRIC = {Task.MULTICLASS: "balanced_accuracy", Task.MULTILABEL: "auroc"}


def score_of(record: dict[str, Any], metric: str) -> float:
    """Return the metric on validation data if there is some, else on test data; −∞ if undefined."""
    value = record["scores"][judged_on(record)]["macro"][metric]
    return -math.inf if value is None else float(value)


def judged_on(record: dict[str, Any]) -> str:
    """Name the examples the best round is chosen on."""
    return "validation" if "validation" in record["scores"] else "test"


def is_better(record: dict[str, Any], before: dict[str, Any] | None, metric: str) -> bool:
    """Tell whether a round beats the best one so far; an equal one does not."""
    return before is None or score_of(record, metric) > score_of(before, metric)


def best_record(records: Iterable[dict[str, Any]], metric: str) -> dict[str, Any] | None:
    """Return the first of the best rounds."""
    return max(records, key=lambda record: score_of(record, metric), default=None)
