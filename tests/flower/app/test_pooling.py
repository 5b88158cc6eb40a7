"""Scores of sites as one: exact where they can be, within the sites' range everywhere."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.evaluation.metrics import score_multiclass, score_multilabel
from fedbb.flower.app.pooling import pool_scores, weighted_mean
from fedbb.records import Task


def site(samples, seed, classes=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, classes)), rng.integers(0, classes, samples)


def test_one_sites_scores_are_the_pooled_ones():
    alone = score_multiclass(*site(30, 0))
    pooled = pool_scores([{"test": alone}], Task.MULTICLASS)["test"]
    assert pooled.as_json() == alone.as_json()


def test_one_sites_scores_are_the_pooled_ones_with_many_labels():
    rng = np.random.default_rng(1)
    alone = score_multilabel(rng.normal(size=(40, 3)), rng.integers(0, 2, (40, 3)))
    pooled = pool_scores([{"test": alone}], Task.MULTILABEL)["test"]
    assert pooled.macro == pytest.approx(alone.macro)
    assert pooled.defined == alone.defined


def test_accuracy_is_that_of_all_samples_together():
    parts = [site(30, 0), site(10, 1), site(55, 2)]
    together = score_multiclass(*(np.concatenate(both) for both in zip(*parts, strict=True)))
    pooled = pool_scores([{"test": score_multiclass(*part)} for part in parts], Task.MULTICLASS)
    assert pooled["test"].macro["accuracy"] == pytest.approx(together.macro["accuracy"])
    assert pooled["test"].samples == 95


def test_a_class_that_a_site_lacks_is_scored_by_the_others():
    logits, labels = site(30, 0)
    lacking = score_multiclass(logits, np.minimum(labels, 1))
    whole = score_multiclass(*site(10, 1))
    pooled = pool_scores([{"test": lacking}, {"test": whole}], Task.MULTICLASS)["test"]
    assert pooled.per_class["recall"][2] == whole.per_class["recall"][2]
    assert pooled.defined["f1"] == 3
    nowhere = pool_scores([{"test": lacking}], Task.MULTICLASS)["test"]
    assert math.isnan(nowhere.per_class["recall"][2])
    assert nowhere.defined["f1"] == 2


def test_a_site_without_validation_data_counts_for_test_data_only():
    one, two = score_multiclass(*site(30, 0)), score_multiclass(*site(10, 1))
    pooled = pool_scores([{"test": one}, {"test": two, "validation": two}], Task.MULTICLASS)
    assert pooled["test"].samples == 40
    assert pooled["validation"].as_json() == two.as_json()


@given(
    st.lists(
        st.tuples(st.floats(0, 1) | st.just(math.nan), st.integers(1, 10**6)),
        min_size=1,
        max_size=6,
    )
)
def test_a_mean_lies_among_what_there_is(pairs):
    values = np.array([[value] for value, _ in pairs])
    sizes = np.array([float(size) for _, size in pairs])
    (mean,) = weighted_mean(values, sizes)
    there = values[~np.isnan(values)]
    if len(there) == 0:
        assert math.isnan(mean)
    else:
        assert there.min() - 1e-12 <= mean <= there.max() + 1e-12
