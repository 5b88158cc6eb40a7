"""Thresholds from counts that can be added over sites, and decisions as shifted logits."""

import numpy as np
import pytest
from scipy.special import expit, softmax

from fedbb.evaluation.metrics import score_logits
from fedbb.evaluation.operating_point import (
    ODDS,
    choose_thresholds,
    count_by_odds,
    decision_shift,
    thresholds_of_counts,
)
from fedbb.evaluation.score_report import predict_by_thresholds, score_model
from fedbb.records import Task

RULES = ("youden", "f1", 0.8)


def samples(task, seed, number=60, classes=3):
    """Return logits whose log-odds lie in bins of their own, and labels, some of them unknown."""
    rng = np.random.default_rng(seed)
    odds = rng.permuted(np.tile(np.linspace(-3, 3, number) + 0.003, (classes, 1)), axis=1).T
    truth = (rng.random(odds.shape) < expit(odds)).astype(np.float64)
    if task is Task.MULTILABEL:
        truth[rng.random(truth.shape) < 0.1] = np.nan
        return odds, truth
    base = rng.normal(size=number)
    return np.stack([base, base + odds[:, 0]], axis=1), truth[:, 0].astype(np.int64)


def chances(task, logits):
    return expit(logits) if task is Task.MULTILABEL else softmax(logits, axis=1)


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("rule", RULES)
def test_thresholds_of_counts_decide_as_those_of_all_samples(task, rule):
    for seed in range(10):
        logits, labels = samples(task, seed)
        exact = choose_thresholds(labels, chances(task, logits), rule)
        counted = thresholds_of_counts(count_by_odds(logits, labels, task), task, rule)
        known = ~np.isnan(labels.astype(float))
        decisions = (
            predict_by_thresholds(task, chances(task, logits), limits)[known]
            for limits in (exact, counted)
        )
        np.testing.assert_array_equal(*decisions)


@pytest.mark.parametrize("task", list(Task))
def test_counts_of_sites_add_up_to_those_of_all(task):
    logits, labels = samples(task, 0)
    parts = [count_by_odds(logits[rows], labels[rows], task) for rows in (slice(20), slice(20, 60))]
    whole = count_by_odds(logits, labels, task)
    np.testing.assert_array_equal(sum(parts), whole)
    assert whole.shape == (2, 1 if task is Task.MULTICLASS else 3, len(ODDS) + 1)
    assert whole.sum() == (~np.isnan(labels.astype(float))).sum()


def test_extreme_logits_and_classes_of_one_kind_have_thresholds():
    logits = np.array([[-40.0, 40.0, 0.0], [-30.0, 30.0, 1.0]])
    labels = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    limits = thresholds_of_counts(
        count_by_odds(logits, labels, Task.MULTILABEL), Task.MULTILABEL, 1.0
    )
    assert limits[0] < 0  # below all: only so is the lowest case found
    assert limits[2] == 0.5
    assert predict_by_thresholds(Task.MULTILABEL, expit(logits), limits)[0, 0]


@pytest.mark.parametrize("task", list(Task))
def test_plain_scores_of_shifted_logits_are_those_at_the_operating_point(task):
    rng = np.random.default_rng(0)
    for seed in range(5):
        logits, labels = samples(task, seed)
        classes = logits.shape[1]
        adjustment, second = rng.normal(size=classes), rng.random(classes)
        limits = np.array([1 - second[1], second[1]]) if task is Task.MULTICLASS else second
        shift = decision_shift(task, limits, adjustment, classes)
        found = score_logits(logits + shift, labels, task)
        names = tuple("abc"[:classes])
        expected = score_model(logits + adjustment, labels, task, names, thresholds=limits)
        for name in ("accuracy", "balanced_accuracy", "f1", "auroc"):
            assert found.macro[name] == pytest.approx(expected.macro[name]), name


@pytest.mark.parametrize("limit", [-5e-324, 0.0, 1.0])
def test_a_threshold_that_all_or_none_pass_is_finite_as_a_shift(limit):
    shift = decision_shift(Task.MULTILABEL, [limit], None, 1)
    assert np.isfinite(shift).all()
    assert ((np.array([-700.0, 700.0]) + shift > 0) == (limit <= 0)).all()
