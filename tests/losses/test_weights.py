"""Class weights as a plain tensor: their rules, their scale, and what they refuse."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from fedbb.imbalance import class_factors
from fedbb.losses.pnb import PNBLoss
from fedbb.losses.weights import class_weights
from helpers.columns import Column

LABELS = [0] * 70 + [1] * 20 + [2] * 10
RULES = ("effective", "inverse", "pnb")


@pytest.mark.parametrize("rule", RULES)
def test_the_mean_weight_over_the_samples_is_one(rule):
    weight = class_weights(LABELS, rule)
    assert (weight.dtype, weight.shape) == (torch.float32, (3,))
    assert weight[LABELS].mean().item() == pytest.approx(1)
    assert torch.equal(weight, class_weights(counts=[70, 20, 10], rule=rule))


def test_inverse_is_what_scikit_learn_calls_balanced():
    expected = compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    assert class_weights(LABELS, "inverse").tolist() == pytest.approx(expected.tolist())


def test_effective_has_the_ratios_of_the_class_balanced_loss_and_pnb_the_weights_of_pnb():
    weight = class_weights(LABELS, beta=0.99, tau=2.0)
    factors = torch.from_numpy(class_factors([70, 20, 10], beta=0.99, tau=2.0)).float()
    torch.testing.assert_close(weight / weight[0], factors / factors[0])
    pnb = PNBLoss.from_targets(LABELS, beta=0.99, tau=2.0)
    torch.testing.assert_close(
        class_weights(LABELS, "pnb", beta=0.99, tau=2.0), pnb.positive_weight
    )


@pytest.mark.parametrize("wrap", [list, np.array, Column])
def test_text_labels_are_weighted_in_the_order_of_their_names(wrap):
    animals = wrap(["dog", "cat", "dog", "dog"])
    assert class_weights(animals, "inverse").tolist() == pytest.approx([2, 2 / 3])
    named = class_weights(animals, "inverse", classes=["dog", "cat", "ant"])
    assert named.tolist() == pytest.approx([2 / 3, 2, 0])


def test_unknown_labels_count_nowhere_and_absent_classes_weigh_nothing():
    weight = class_weights([0, 0, 1, 255, 255], "inverse", classes=3, ignore_index=255)
    assert weight.tolist() == pytest.approx([0.75, 1.5, 0])


def test_torchs_loss_takes_them():
    loss = nn.CrossEntropyLoss(weight=class_weights(LABELS))
    assert torch.isfinite(loss(torch.eye(3), torch.arange(3)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either targets y or the counts"),
        ({"y": [0, 1], "counts": [1, 1]}, "either targets y or the counts"),
        ({"y": [0, 1], "rule": "sqrt"}, "rule must be one of effective, inverse, pnb, not 'sqrt'"),
        ({"y": [0, 1], "beta": 1.0, "rule": "inverse"}, "beta must be in"),
        ({"y": [[0.0, 1.0]]}, "multi-class labels must have shape"),
        ({"counts": [0, 0]}, "no sample has a weight"),
        ({"counts": [3, 0], "rule": "pnb"}, "no sample has a weight"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        class_weights(**arguments)
