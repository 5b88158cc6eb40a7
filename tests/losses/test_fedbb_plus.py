"""The loss of `fedbb-plus` alone is that of the method, and fits into ordinary code."""

import numpy as np
import pytest
import torch

from fedbb.imbalance import count_labels
from fedbb.losses.fedbb_plus import FedBBPlusLoss
from fedbb.methods import fedbb_plus
from fedbb.records import Task
from helpers.batches import NAN, check_drop_in, counts_of, equal_bits, holey_batch

ROWS = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, NAN]])


@pytest.mark.parametrize("positive", [(90, 9, 1), (90, 0, 10), (0, 5, 0), (0, 0, 0)])
def test_it_is_the_loss_of_the_method_on_classes_to_the_bit(positive):
    counts = counts_of(*positive)
    of_method = fedbb_plus().loss.bind(counts, Task.MULTICLASS)
    loss = FedBBPlusLoss(counts.positive, counts.negative)
    assert equal_bits(loss, of_method, *holey_batch("multiclass"))


def test_it_is_the_loss_of_the_method_on_labels_to_the_bit():
    of_method = fedbb_plus().loss.bind(count_labels(ROWS, "multilabel", 3), Task.MULTILABEL)
    loss = FedBBPlusLoss.from_targets(ROWS, task="multilabel")
    assert loss.spec == fedbb_plus().loss
    assert equal_bits(loss, of_method, *holey_batch("multilabel"))


def test_its_options_are_those_of_the_specs():
    loss = FedBBPlusLoss([16, 1], margin=2.0, beta=0.9)
    assert loss.margin.tolist() == [0, 1]
    assert (loss.spec.loss.beta, loss.spec.loss.mu) == (0.9, "unit")
    assert (loss.positive_weight @ torch.tensor([16.0, 1])).item() == pytest.approx(17)
    with pytest.raises(ValueError, match="label_margin must be a finite number"):
        FedBBPlusLoss([16, 1], label_margin=-1.0)


@pytest.mark.parametrize("task", list(Task))
def test_it_fits_into_ordinary_code(task):
    check_drop_in(FedBBPlusLoss([90, 9, 1], samples=100, task=task), task)
