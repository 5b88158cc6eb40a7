"""Calibrated logits before any loss: FedLC where that is plain, with PNB's weights where not."""

import numpy as np
import pytest
import torch

from fedbb.imbalance.counts import count_labels
from fedbb.losses.calibrated import Calibrated, Calibration
from fedbb.losses.cross_entropy import CrossEntropy
from fedbb.losses.logit_calibrated import LogitCalibrated, margins
from fedbb.losses.pnb import PNB, weigh
from fedbb.records import Task

TARGETS = torch.tensor([0, 0, 0, 1, 1, 3])
COUNTS = count_labels(np.repeat([0, 1, 3], [600, 80, 3]), Task.MULTICLASS, 4)
LOGITS = torch.tensor(np.random.default_rng(0).normal(size=(6, 4)))


def calibrated(loss, margin=1.0):
    return Calibrated(loss, Calibration(margin)).bind(COUNTS, Task.MULTICLASS).double()


@pytest.mark.parametrize("margin", [0.0, 1.0, 10.0])
def test_before_the_plain_loss_it_is_fedlc(margin):
    plain = calibrated(CrossEntropy(), margin)(LOGITS, TARGETS)
    fedlc = LogitCalibrated(tau=margin).bind(COUNTS, Task.MULTICLASS).double()
    assert plain.item() == fedlc(LOGITS, TARGETS).item()


def test_before_pnb_it_is_a_weighted_softmax_over_present_classes_by_hand():
    spec = PNB(beta=0.999, mu="unit", class_factor="effective")
    present = COUNTS.positive > 0
    lowered = LOGITS.numpy()[:, present] - margins(COUNTS.positive, 2.0)[present]
    logs = lowered - np.log(np.exp(lowered).sum(axis=1, keepdims=True))
    places = {0: 0, 1: 1, 3: 2}
    weights = weigh(spec, COUNTS, Task.MULTICLASS).positive
    expected = [-weights[y] * logs[i, places[y]] for i, y in enumerate(TARGETS.tolist())]
    found = calibrated(spec, 2.0)(LOGITS, TARGETS).item()
    assert found == pytest.approx(np.mean(expected), rel=1e-6)


def test_absent_classes_get_no_gradient():
    logits = LOGITS.clone().requires_grad_()
    calibrated(PNB())(logits, TARGETS).backward()
    assert torch.all(logits.grad[:, 2] == 0)
    assert torch.all(logits.grad[:, [0, 1, 3]] != 0)


ROWS = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
LABELS = count_labels(ROWS.numpy(), Task.MULTILABEL, 3)
SCORES = torch.tensor(np.random.default_rng(1).normal(size=(4, 3)))


def of_labels(loss, margin=1.0):
    spec = Calibrated(loss, Calibration(label_margin=margin))
    return spec.bind(LABELS, Task.MULTILABEL).double()


def test_a_label_is_a_softmax_over_its_cases_and_those_against_it():
    pairs = torch.stack((torch.zeros(4, dtype=torch.float64), SCORES[:, 1]), dim=1)
    counts = count_labels(np.repeat([0, 1], [3, 1]), Task.MULTICLASS, 2)
    softmax = LogitCalibrated(tau=5.0).bind(counts, Task.MULTICLASS).double()
    one = count_labels(ROWS[:, 1:2].numpy(), Task.MULTILABEL, 1)
    spec = Calibrated(CrossEntropy(), Calibration(label_margin=5.0))
    label = spec.bind(one, Task.MULTILABEL).double()
    expected = softmax(pairs, ROWS[:, 1].long()).item()
    assert label(SCORES[:, 1:2], ROWS[:, 1:2]).item() == pytest.approx(expected, rel=1e-6)


def test_labels_as_often_as_not_have_no_margin():
    halved = of_labels(PNB(), 10.0).margin
    assert halved[0] == 0
    assert halved[1] > 0


@pytest.mark.parametrize("kind", [0.0, 1.0])
def test_a_label_of_one_kind_of_case_is_settled(kind):
    rows = ROWS.clone()
    rows[:, 2] = kind
    counts = count_labels(rows.numpy(), Task.MULTILABEL, 3)
    bound = Calibrated(CrossEntropy(), Calibration()).bind(counts, Task.MULTILABEL).double()
    logits = SCORES.clone().requires_grad_()
    loss = bound(logits, rows)
    loss.backward()
    assert torch.all(logits.grad[:, 2] == 0)
    assert torch.all(logits.grad[:, :2] != 0)
    other = SCORES.clone()
    other[:, 2] = 3.0
    assert bound(other, rows).item() == loss.item() < 1


def test_without_margins_labels_of_both_kinds_are_scored_as_they_are():
    counts = count_labels(ROWS[:, :2].numpy(), Task.MULTILABEL, 2)
    bound = Calibrated(PNB(), Calibration(10.0)).bind(counts, Task.MULTILABEL)
    plain = PNB().bind(counts, Task.MULTILABEL)
    assert bound(SCORES[:, :2], ROWS[:, :2]) == plain(SCORES[:, :2], ROWS[:, :2])


def test_unknown_labels_count_nowhere():
    rows = ROWS.clone()
    rows[0, 0] = float("nan")
    logits = SCORES.clone().requires_grad_()
    of_labels(PNB())(logits, rows).backward()
    assert logits.grad[0, 0] == 0
    assert torch.all(torch.isfinite(logits.grad))


def test_a_client_whose_labels_are_all_of_one_kind_learns_nothing_and_is_told():
    empty = count_labels(np.zeros((4, 3)), Task.MULTILABEL, 3)
    spec = Calibrated(CrossEntropy(), Calibration())
    assert spec.mean_weight(empty, Task.MULTILABEL) == 0
    assert "learns nothing" in spec.diagnostics(empty, Task.MULTILABEL)[0]
    assert spec.mean_weight(LABELS, Task.MULTILABEL) == 1
    assert spec.diagnostics(LABELS, Task.MULTILABEL) == []


def test_a_client_of_one_class_learns_nothing_and_is_told():
    alone = count_labels(np.zeros(9, dtype=np.int64), Task.MULTICLASS, 3)
    spec = Calibrated(CrossEntropy(), Calibration())
    logits = torch.randn(4, 3, requires_grad=True)
    spec.bind(alone, Task.MULTICLASS)(logits, torch.zeros(4, dtype=torch.int64)).backward()
    assert torch.all(logits.grad == 0)
    assert spec.mean_weight(alone, Task.MULTICLASS) == 0
    assert "learns nothing" in spec.diagnostics(alone, Task.MULTICLASS)[0]
    assert spec.mean_weight(COUNTS, Task.MULTICLASS) == 1
    assert spec.diagnostics(COUNTS, Task.MULTICLASS) == []


@pytest.mark.parametrize("name", ["margin", "label_margin"])
@pytest.mark.parametrize("margin", [-0.1, float("inf"), float("nan")])
def test_a_margin_that_is_none_is_refused(name, margin):
    with pytest.raises(ValueError, match=f"^{name} must be a finite number of at least 0"):
        Calibration(**{name: margin})


def test_logits_of_another_number_of_classes_are_refused():
    with pytest.raises(ValueError, match="the loss knows 4 classes, the logits 3"):
        calibrated(CrossEntropy())(LOGITS[:, :3], TARGETS)
