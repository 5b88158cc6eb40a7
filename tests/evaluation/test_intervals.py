"""Intervals of one evaluation, against scipy, a number worked by hand, and simulation."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from fedbb.evaluation.intervals import auroc_interval, wilson_interval


@pytest.mark.parametrize(("hits", "cases"), [(0, 5), (3, 3), (8, 10), (50, 400)])
def test_wilson_interval_is_scipys(hits, cases):
    expected = binomtest(hits, cases).proportion_ci(0.95, method="wilson")
    low, high = wilson_interval(hits / cases, cases)
    assert low == pytest.approx(expected.low)
    assert high == pytest.approx(expected.high)


def test_auroc_interval_of_hanley_and_mcneil():
    # θ = 0.8, 20 positive and 30 negative cases: Q1 = 0.8/1.2 = 0.6667, Q2 = 1.28/1.8 = 0.7111;
    # variance (0.16 + 19·0.026667 + 29·0.071111)/600 = 0.0045481, standard error 0.067440.
    low, high = auroc_interval(0.8, 20, 30)
    assert (high - low) / (2 * 1.959964) == pytest.approx(0.067440, abs=1e-5)


def test_auroc_interval_covers_the_true_area():
    # Two normal distributions a distance d apart have the area Φ(d/√2).
    rng, truth, covered = np.random.default_rng(0), 0.7602, 0
    for _ in range(300):
        scores = np.concatenate([rng.normal(1, 1, 40), rng.normal(0, 1, 80)])
        labels = np.repeat([1, 0], [40, 80])
        low, high = auroc_interval(float(roc_auc_score(labels, scores)), 40, 80)
        covered += low <= truth <= high
    assert 0.91 <= covered / 300 <= 0.985


def test_no_cases_have_no_interval():
    assert all(math.isnan(end) for end in wilson_interval(float("nan"), 0))
    assert all(math.isnan(end) for end in auroc_interval(0.5, 0, 10))


def test_intervals_stay_within_bounds():
    assert wilson_interval(1.0, 3).high == 1.0
    assert auroc_interval(0.99, 2, 2).high == 1.0
