import numpy as np
import pytest

from fedbb.losses.class_balanced import ClassBalanced
from fedbb.losses.cross_entropy import CrossEntropy, ScaledCrossEntropy
from fedbb.losses.focal import Focal
from fedbb.losses.logit_calibrated import Calibrated, Calibration, LogitCalibrated
from fedbb.losses.pnb import PNB
from fedbb.records import LabelCounts, Task


def counts(*positive):
    held = np.array(positive, dtype=np.float64)
    return LabelCounts(held, held.sum() - held, int(held.sum()))


@pytest.mark.parametrize("loss", [PNB(), ScaledCrossEntropy(PNB())])
def test_a_client_of_one_class_is_reported(loss):
    assert "learns nothing" in loss.diagnostics(counts(0, 40, 0), Task.MULTICLASS)[0]


def test_a_floor_under_alpha_lets_that_client_learn():
    assert PNB(alpha_min=0.1).diagnostics(counts(0, 40, 0), Task.MULTICLASS) == []


def test_a_saturated_beta_is_reported():
    # β = 0.6: E is at its ceiling 2.5 for all of these counts, so every α is one half.
    assert (
        "re-weights nothing" in PNB(beta=0.6).diagnostics(counts(50, 400, 30), Task.MULTICLASS)[0]
    )
    assert (
        PNB(beta=0.0).diagnostics(counts(50, 400, 30), Task.MULTICLASS) == []
    )  # that is what 0 says
    assert PNB(beta=0.9999).diagnostics(counts(50, 400, 30), Task.MULTICLASS) == []


def test_two_even_classes_are_half_by_themselves_and_no_fault_of_beta():
    assert PNB().diagnostics(counts(20, 20), Task.MULTICLASS) == []


def test_the_plain_loss_reports_nothing():
    assert CrossEntropy().diagnostics(counts(0, 40), Task.MULTICLASS) == []


LOSSES = [
    CrossEntropy(),
    PNB(),
    PNB(mu="unit"),
    PNB(class_factor="effective", alpha_min=0.1),
    ClassBalanced(),
    Focal(),
    LogitCalibrated(),
    ScaledCrossEntropy(PNB()),
    Calibrated(PNB(mu="unit"), Calibration()),
]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("task", list(Task))
def test_mean_weights_of_many_clients_are_those_of_each(loss, task):
    positive = np.random.default_rng(0).integers(0, 300, (40, 6)).astype(np.float64)
    positive[0, 1:] = positive[1] = 0
    negative = positive.sum(axis=1, keepdims=True) - positive
    each = [
        loss.mean_weight(LabelCounts(*cases, 0), task)
        for cases in zip(positive, negative, strict=True)
    ]
    assert loss.mean_weights(positive, negative, task) == pytest.approx(each, rel=1e-12)
