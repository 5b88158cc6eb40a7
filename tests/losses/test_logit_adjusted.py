"""Logit adjustment: hand-worked margins, the balanced softmax, labels as pairs, absent classes."""

import math

import numpy as np
import pytest
import torch

from fedbb.imbalance import count_labels
from fedbb.losses.cross_entropy import PlainLoss
from fedbb.losses.logit_adjusted import LogitAdjusted, LogitAdjustedLoss
from fedbb.records import Task
from helpers.batches import (
    NAN,
    check_drop_in,
    counts_of,
    equal_bits,
    holey_batch,
    value_and_slope,
)


def test_loss_of_two_samples_worked_by_hand():
    """Zero logits and counts 3, 1: the softmax of the priors, −ln ¾ and −ln ¼."""
    each = LogitAdjustedLoss([3, 1], reduction="none")(torch.zeros(2, 2), torch.tensor([0, 1]))
    assert each.tolist() == pytest.approx([math.log(4 / 3), math.log(4)])


@pytest.mark.parametrize(
    ("tau", "value"), [(1.0, 2.027475005), (0.5, 1.458020088), (0.0, 0.974076984)]
)
def test_the_balanced_softmax_has_the_published_values(tau, value):
    logits = torch.tensor([[1.0, 0.5]], dtype=torch.float64)
    loss = LogitAdjustedLoss([8, 2], tau=tau)
    assert loss(logits, torch.tensor([1])).item() == pytest.approx(value, abs=1e-8)


def test_a_label_has_the_published_values():
    """Two cases for and eight against: logit 1 less log 4."""
    loss = LogitAdjustedLoss([2], samples=10, task="multilabel", reduction="none")
    logits = torch.ones(2, 1, dtype=torch.float64)
    each = loss(logits, torch.tensor([[1.0], [0.0]], dtype=torch.float64))
    assert each.flatten().tolist() == pytest.approx([0.904832442, 0.518538080], abs=1e-8)


@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 2.0])
def test_it_is_cross_entropy_on_logits_plus_tau_times_the_log_prior(tau):
    prior, (logits, targets) = torch.tensor([0.7, 0.2, 0.1]), holey_batch("multiclass")
    plain = PlainLoss(Task.MULTICLASS)(logits + tau * prior.log(), targets)
    torch.testing.assert_close(LogitAdjustedLoss([70, 20, 10], tau=tau)(logits, targets), plain)


def test_a_label_is_a_softmax_over_its_two_cases():
    scores, labels = torch.tensor([0.3, -1.0, 2.0]), torch.tensor([1, 0, 0])
    pairs = torch.stack((torch.zeros(3), scores), dim=1)
    softmax = LogitAdjustedLoss([90, 10], tau=1.5)(pairs, labels)
    label = LogitAdjustedLoss([10], samples=100, task="multilabel", tau=1.5)
    torch.testing.assert_close(label(scores, labels), softmax)


@pytest.mark.parametrize("task", list(Task))
def test_tau_zero_is_the_plain_loss_to_the_bit_where_all_cases_occur(task):
    loss = LogitAdjustedLoss([70, 20, 10], samples=100, task=task, tau=0.0)
    assert equal_bits(loss, PlainLoss(task), *holey_batch(task))


def test_absent_classes_drop_out():
    logits, targets = torch.tensor([[1.0, 5.0, -1.0], [0.5, -3.0, 0.0]]), torch.tensor([0, 2])
    value, slope = value_and_slope(LogitAdjustedLoss([70, 0, 10]), logits, targets)
    rest = LogitAdjustedLoss([70, 10])(logits[:, [0, 2]], targets // 2)
    torch.testing.assert_close(value, rest)
    assert torch.all(slope[:, 1] == 0)


@pytest.mark.parametrize("positive", [0, 100])
def test_a_label_of_one_kind_is_settled(positive):
    loss = LogitAdjustedLoss([30, positive], samples=100, task="multilabel")
    rows = torch.tensor([[1.0, float(positive > 0)]])
    value, slope = value_and_slope(loss, torch.tensor([[0.5, 2.0]]), rows)
    assert slope[0, 1] == 0
    assert 0 < value.item() < 2


@pytest.mark.parametrize("task", list(Task))
def test_it_fits_into_ordinary_code(task):
    check_drop_in(LogitAdjustedLoss([90, 9, 1], samples=100, task=task), task)


def test_counts_without_a_sample_adjust_nothing():
    loss = LogitAdjustedLoss([0, 0, 0])
    assert equal_bits(loss, PlainLoss(Task.MULTICLASS), *holey_batch("multiclass"))


def test_the_spec_binds_and_reports_a_client_that_learns_nothing():
    spec, counts = LogitAdjusted(0.5), counts_of(3, 1)
    assert spec.bind(counts, Task.MULTICLASS).spec == spec
    assert (
        spec.mean_weight(counts, Task.MULTICLASS),
        spec.diagnostics(counts, Task.MULTICLASS),
    ) == (
        1.0,
        [],
    )
    alone = counts_of(3, 0)
    assert spec.mean_weight(alone, Task.MULTICLASS) == 0
    assert "learns nothing" in spec.diagnostics(alone, Task.MULTICLASS)[0]
    empty = count_labels(np.zeros((4, 2)), "multilabel", 2)
    assert spec.mean_weight(empty, Task.MULTILABEL) == 0


@pytest.mark.parametrize("tau", [-1.0, NAN, float("inf")])
def test_a_tau_outside_of_its_range_is_refused(tau):
    with pytest.raises(ValueError, match="tau must be a finite number of at least 0"):
        LogitAdjustedLoss([3, 1], tau=tau)
