"""A dead model is told from one that is merely bad."""

import numpy as np
import pytest

from fedbb.evaluation.collapse import is_collapsed
from fedbb.evaluation.metrics import score_multiclass, score_multilabel

CLASSES = np.array([0, 1, 2, 0])
LABELS = np.array([[1, 0], [0, 1], [0, 0], [1, 1]])


def per_class(scores):
    return scores.as_json()["per_class"]


@pytest.mark.parametrize("row", [[0.0, 0.0, 0.0], [3.0, -1.0, 0.5]])
def test_the_same_scores_for_all_are_a_collapse_of_classes(row):
    assert is_collapsed(per_class(score_multiclass(np.tile(row, (4, 1)), CLASSES)))


@pytest.mark.parametrize("row", [[0.0, 0.0], [3.0, -1.0]])
def test_the_same_scores_for_all_are_a_collapse_of_labels(row):
    assert is_collapsed(per_class(score_multilabel(np.tile(row, (4, 1)), LABELS)))


def test_scores_that_differ_are_none():
    rng = np.random.default_rng(0)
    assert not is_collapsed(per_class(score_multiclass(rng.normal(size=(4, 3)), CLASSES)))


def test_half_ranks_with_some_right_and_some_wrong_are_none():
    logits = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    found = per_class(score_multilabel(logits, np.array([[1], [1], [0], [0]])))
    assert found["auroc"] == [0.5]
    assert not is_collapsed(found)


def test_without_any_ranked_class_nothing_is_told():
    assert not is_collapsed({"auroc": [None, None], "recall": [None, 1.0]})
