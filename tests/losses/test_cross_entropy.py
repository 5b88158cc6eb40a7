"""The plain losses, and the control that is scaled like another loss."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedbb.losses.cross_entropy import CrossEntropy, PlainLoss, ScaledCrossEntropy
from fedbb.losses.pnb import PNB
from fedbb.records import LabelCounts, Task

NAN = float("nan")
COUNTS = LabelCounts(np.array([90.0, 9.0, 1.0]), np.array([10.0, 91.0, 99.0]), 100)
LOGITS = torch.linspace(-3, 3, 12).reshape(4, 3)
TARGETS = {
    Task.MULTICLASS: torch.tensor([0, 2, 1, 1]),
    Task.MULTILABEL: torch.tensor([[1.0, 0, 0], [0, 1, 1], [1, 0, 1], [0, 0, 0]]),
}


def by_torch(task: Task) -> torch.Tensor:
    if task is Task.MULTICLASS:
        return F.cross_entropy(LOGITS, TARGETS[task])
    return F.binary_cross_entropy_with_logits(LOGITS, TARGETS[task])


@pytest.mark.parametrize("task", list(Task))
def test_plain_loss_is_that_of_torch_and_blind_to_counts(task):
    torch.testing.assert_close(
        CrossEntropy().bind(COUNTS, task)(LOGITS, TARGETS[task]), by_torch(task)
    )
    assert CrossEntropy().mean_weight(COUNTS, task) == 1.0


@pytest.mark.parametrize("task", list(Task))
def test_scaled_loss_is_the_plain_one_times_the_mean_weight_of_pnb(task):
    like = PNB(mu=4.0)
    control = ScaledCrossEntropy(like)
    factor = like.mean_weight(COUNTS, task)
    assert control.mean_weight(COUNTS, task) == factor != 1.0
    scaled = control.bind(COUNTS, task)(LOGITS, TARGETS[task])
    torch.testing.assert_close(scaled, factor * by_torch(task))


def test_the_mean_weight_is_the_ratio_of_the_losses_on_the_clients_own_uniform_guesses():
    """At zero logits every case costs the same, so only the weights tell PNB from CE."""
    targets = torch.repeat_interleave(torch.arange(3), torch.tensor([90, 9, 1]))
    logits = torch.zeros(100, 3)
    spec = PNB(mu=4.0)
    ratio = spec.bind(COUNTS, Task.MULTICLASS)(logits, targets) / F.cross_entropy(logits, targets)
    assert ratio.item() == pytest.approx(spec.mean_weight(COUNTS, Task.MULTICLASS), rel=1e-5)


def test_unknown_labels_count_nowhere_in_the_plain_losses():
    labels = torch.tensor([0, -100, 1, -100])
    expected = F.cross_entropy(LOGITS, labels, ignore_index=-100)
    torch.testing.assert_close(PlainLoss(Task.MULTICLASS)(LOGITS, labels), expected)
    rows = torch.tensor([[1, NAN, 0], [NAN, NAN, NAN], [1, 0, 1], [0, 0, NAN]])
    known = ~rows.isnan()
    expected = F.binary_cross_entropy_with_logits(LOGITS[known], rows[known])
    torch.testing.assert_close(PlainLoss(Task.MULTILABEL)(LOGITS, rows), expected)


@pytest.mark.parametrize("task", list(Task))
def test_reductions_agree(task):
    each, total, mean = (
        PlainLoss(task, scale=2.0, reduction=reduction)(LOGITS, TARGETS[task])
        for reduction in ("none", "sum", "mean")
    )
    torch.testing.assert_close(each.sum(), total)
    torch.testing.assert_close(each.mean(), mean)


def test_result_lives_on_the_device_of_the_logits():
    for task, targets in TARGETS.items():
        assert PlainLoss(task)(LOGITS.to("meta"), targets.to("meta")).device.type == "meta"
