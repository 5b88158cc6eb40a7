"""Accuracy on data mixed as a client's own: the recalls in the proportion of its cases."""

import numpy as np
import pytest

from fedbb.evaluation.metrics import score_multiclass
from fedbb.evaluation.personalization import own_accuracy


def test_it_is_the_accuracy_of_a_test_set_in_the_clients_proportions():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 50)
    logits = rng.normal(size=(200, 4)) + 2 * np.eye(4)[labels]
    recall = score_multiclass(logits, labels).per_class["recall"]
    cases = np.array([3.0, 1.0, 0.0, 2.0])
    mixed = np.concatenate(
        [np.repeat(np.flatnonzero(labels == c), int(cases[c])) for c in range(4)]
    )
    assert own_accuracy(recall, cases) == pytest.approx(
        score_multiclass(logits[mixed], labels[mixed]).macro["accuracy"], abs=1e-12
    )


def test_even_cases_give_balanced_accuracy():
    recall = np.array([0.2, 0.4, 0.9])
    assert own_accuracy(recall, np.full(3, 7.0)) == pytest.approx(0.5)


def test_a_class_without_test_images_stays_out():
    recall = np.array([0.2, np.nan, 0.8])
    assert own_accuracy(recall, np.array([1.0, 98.0, 1.0])) == pytest.approx(0.5)
    assert np.isnan(own_accuracy(recall, np.array([0.0, 5.0, 0.0])))
