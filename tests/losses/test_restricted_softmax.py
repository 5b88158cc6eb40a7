"""FedRS: published numbers, the plain loss at α = 1, and less pull on absent classes."""

import pytest
import torch

from fedbb.losses.cross_entropy import PlainLoss
from fedbb.losses.restricted_softmax import RestrictedSoftmax
from fedbb.records import Task
from helpers.batches import counts_of, equal_bits, holey_batch, value_and_slope

MULTICLASS = Task.MULTICLASS


def test_losses_of_one_sample_have_the_published_values():
    logits, target = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([1])
    by_counts = RestrictedSoftmax(0.5, "counts").bind(counts_of(6, 3, 1), MULTICLASS)
    assert by_counts.factor.tolist() == pytest.approx([1, 0.75, 0.5833333])
    assert by_counts(logits, target).item() == pytest.approx(2.191328479, abs=1e-6)
    absent = RestrictedSoftmax().bind(counts_of(6, 3, 0), MULTICLASS)
    assert absent.factor.tolist() == [1, 1, 0.5]
    assert absent(logits, target).item() == pytest.approx(2.196734097, abs=1e-6)


@pytest.mark.parametrize("spec", [RestrictedSoftmax(1.0), RestrictedSoftmax(1.0, "counts")])
def test_alpha_one_is_cross_entropy_to_the_bit(spec):
    loss = spec.bind(counts_of(6, 3, 0), MULTICLASS)
    assert equal_bits(loss, PlainLoss(MULTICLASS), *holey_batch("multiclass"))


def test_a_client_that_holds_all_classes_trains_by_cross_entropy():
    loss = RestrictedSoftmax().bind(counts_of(6, 3, 1), MULTICLASS)
    assert equal_bits(loss, PlainLoss(MULTICLASS), *holey_batch("multiclass"))


def test_an_absent_class_is_pushed_less_than_by_cross_entropy():
    logits, target = torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([0])
    _, slope = value_and_slope(
        RestrictedSoftmax(0.5).bind(counts_of(6, 3, 0), MULTICLASS), logits, target
    )
    _, plain = value_and_slope(PlainLoss(MULTICLASS), logits, target)
    assert slope[0, 2].item() == pytest.approx(plain[0, 2].item() / 2)


@pytest.mark.parametrize("options", [{"alpha": -0.1}, {"alpha": 1.1}, {"scaling": "held"}])
def test_a_bad_value_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        RestrictedSoftmax(**options)


def test_it_is_for_multiclass_data():
    assert not RestrictedSoftmax().supports(Task.MULTILABEL)
