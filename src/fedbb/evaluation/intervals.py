"""Confidence intervals of a single evaluation, from the score and the number of cases."""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import ndtri  # type: ignore[import-untyped]

LEVEL = 0.95
"""Confidence level of all intervals."""


class ScoreInterval(NamedTuple):
    """The ends of an interval of a score."""

    low: float
    high: float


def wilson_interval(share: float, cases: float, level: float = LEVEL) -> ScoreInterval:
    """Return Wilson's interval of a proportion, such as accuracy or recall.

    It stays within [0, 1] and is usable for few cases and for proportions of 0 and 1.

    Args:
        share: The observed proportion.
        cases: The number of cases it is a proportion of.
        level: The confidence level.

    Returns:
        The interval; NaN at both ends without cases.

    >>> low, high = wilson_interval(0.8, 10)
    >>> round(low, 4), round(high, 4)
    (0.4902, 0.9433)
    """
    if not cases > 0 or math.isnan(share):
        return ScoreInterval(math.nan, math.nan)
    z = _quantile(level)
    center = share + z * z / (2 * cases)
    margin = z * math.sqrt(share * (1 - share) / cases + z * z / (4 * cases * cases))
    scale = 1 + z * z / cases
    return ScoreInterval(max(0.0, (center - margin) / scale), min(1.0, (center + margin) / scale))


def auroc_interval(
    auroc: float, positives: float, negatives: float, level: float = LEVEL
) -> ScoreInterval:
    """Return the interval of an area under the ROC curve by Hanley and McNeil (1982).

    Args:
        auroc: The observed area.
        positives: The number of positive cases.
        negatives: The number of negative cases.
        level: The confidence level.

    Returns:
        The interval, cut at 0 and 1; NaN at both ends without cases of both kinds.
    """
    if not (positives > 0 and negatives > 0) or math.isnan(auroc):
        return ScoreInterval(math.nan, math.nan)
    both_positive = auroc / (2 - auroc)
    both_negative = 2 * auroc * auroc / (1 + auroc)
    variance = (
        auroc * (1 - auroc)
        + (positives - 1) * (both_positive - auroc * auroc)
        + (negatives - 1) * (both_negative - auroc * auroc)
    ) / (positives * negatives)
    margin = _quantile(level) * math.sqrt(max(0.0, variance))
    return ScoreInterval(max(0.0, auroc - margin), min(1.0, auroc + margin))


def _quantile(level: float) -> float:
    return float(ndtri(0.5 + level / 2))
