"""Symmetric cross-entropy: published values, tolerance of wrong labels, the plain loss."""

import math

import pytest
import torch

from fedbb.losses.cross_entropy import PlainLoss
from fedbb.losses.symmetric import Symmetric, SymmetricLoss, reverse_multiclass
from fedbb.records import Task
from helpers.batches import check_drop_in, counts_of, equal_bits, holey_batch, value_and_slope

A = -math.log(1e-4)
LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.5, 0.0]], dtype=torch.float64)
TARGETS = torch.tensor([0, 2])


def test_values_and_gradient_are_the_published_ones():
    each = SymmetricLoss(reduction="none")(LOGITS, TARGETS)
    assert each.tolist() == pytest.approx([1.45568827, 7.21292807], abs=1e-8)
    assert SymmetricLoss()(LOGITS, TARGETS).item() == pytest.approx(4.33430817, abs=1e-8)
    reverse = SymmetricLoss(alpha=0.0, reduction="none")(LOGITS, TARGETS)
    assert reverse.tolist() == pytest.approx([1.43870366, 7.06712606], abs=1e-8)
    _, slope = value_and_slope(SymmetricLoss(), LOGITS[:1], TARGETS[:1])
    assert slope[0].tolist() == pytest.approx([-1.2295911, 0.89890312, 0.33068798], abs=1e-7)


def test_values_of_labels_are_the_published_ones():
    logits = torch.tensor([[1.0, -2.0], [0.0, 3.0]], dtype=torch.float64)
    labels = torch.eye(2, dtype=torch.float64)
    each = SymmetricLoss(task="multilabel", reduction="none")(logits, labels)
    assert each.flatten().tolist() == pytest.approx(
        [2.5083682, 1.11059229, 4.6744849, 0.44166717], abs=1e-7
    )


@pytest.mark.parametrize("task", list(Task))
def test_without_the_reverse_term_it_is_the_plain_loss_to_the_bit(task):
    loss = SymmetricLoss(alpha=1.0, beta=0.0, task=task)
    assert equal_bits(loss, PlainLoss(task), *holey_batch(task))


def test_the_sum_over_all_labels_of_a_sample_is_constant():
    """The condition under which a loss tolerates evenly wrong labels (Ghosh et al. 2017)."""
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sums = sum(reverse_multiclass(logits, torch.full((5,), c), -100, 0.0) for c in range(4))
    assert sums.tolist() == pytest.approx([A * 3] * 5)


def test_shifting_all_logits_changes_nothing():
    moved = SymmetricLoss()(LOGITS + 5, TARGETS)
    torch.testing.assert_close(moved, SymmetricLoss()(LOGITS, TARGETS))


@pytest.mark.parametrize("task", list(Task))
def test_it_fits_into_ordinary_code_and_skips_unknown_labels(task):
    check_drop_in(SymmetricLoss(task=task), task)
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    nothing = torch.full((3,), -100) if task is Task.MULTICLASS else torch.full((3, 4), math.nan)
    assert SymmetricLoss(task=task)(logits, nothing).item() == 0


@pytest.mark.parametrize(("classes", "size"), [(10, 1.02103404), (100, 0.1921034), (2, 4.7051702)])
def test_its_size_beside_the_plain_loss_is_that_of_even_predictions(classes, size):
    counts = counts_of(*[1] * classes)
    assert Symmetric().mean_weight(counts, Task.MULTICLASS) == pytest.approx(size)
    logits, target = torch.zeros(1, classes, dtype=torch.float64), torch.tensor([0])
    slopes = [
        value_and_slope(loss, logits, target)[1].norm().item()
        for loss in (Symmetric().bind(counts, Task.MULTICLASS), PlainLoss(Task.MULTICLASS))
    ]
    assert slopes[0] / slopes[1] == pytest.approx(size)
    assert Symmetric().mean_weight(counts, Task.MULTILABEL) == pytest.approx(0.1 + A / 2)


@pytest.mark.parametrize("options", [{"alpha": -1}, {"beta": math.inf}, {"alpha": 0, "beta": 0}])
def test_a_bad_value_is_refused(options):
    with pytest.raises(ValueError, match=r"at least 0|both 0"):
        SymmetricLoss(**options)
