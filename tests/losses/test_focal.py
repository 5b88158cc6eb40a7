"""Focal loss: hand-worked numbers, a slow reference, its laws, and what it refuses."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.losses.cross_entropy import PlainLoss
from fedbb.losses.focal import Focal, FocalLoss
from fedbb.records import Task
from helpers.batches import (
    NAN,
    batches,
    check_drop_in,
    counts_of,
    equal_bits,
    holey_batch,
    value_and_slope,
)
from reference import focal as reference

quick = settings(deadline=None, max_examples=20)
TASKS = ("multiclass", "multilabel")
any_batch = st.sampled_from(TASKS).flatmap(batches)
gammas = st.floats(0, 5)


def make(targets: torch.Tensor, **options) -> FocalLoss:
    return FocalLoss(task=TASKS[targets.ndim - 1], **options)


def test_multiclass_loss_worked_by_hand():
    """Logits ln 3 and 0 give p = ¾ and ¼: (¼)²·(−ln ¾) and (¾)²·(−ln ¼)."""
    logits = torch.tensor([[math.log(3), 0], [math.log(3), 0]])
    each = FocalLoss(reduction="none")(logits, torch.tensor([0, 1]))
    assert each.tolist() == pytest.approx([math.log(4 / 3) / 16, 9 / 16 * math.log(4)])
    assert each.tolist() == pytest.approx([0.017980, 0.779791], abs=5e-7)


def test_multilabel_loss_with_alpha_worked_by_hand():
    """The same p; α = ¼ on the positive entry, ¾ on the negative one."""
    logits, targets = torch.tensor([[math.log(3), math.log(3)]]), torch.tensor([[1, 0]])
    each = make(targets, alpha=0.25, reduction="none")(logits, targets)
    by_hand = [math.log(4 / 3) / 64, 27 / 64 * math.log(4)]
    assert each[0].tolist() == pytest.approx(by_hand)
    assert make(targets, alpha=0.25)(logits, targets).item() == pytest.approx(sum(by_hand) / 2)


@quick
@given(batches("multiclass", limit=8), gammas)
def test_multiclass_loss_equals_the_slow_reference(batch, gamma):
    logits, targets = batch
    expected = reference.multiclass(logits.tolist(), targets.tolist(), gamma)
    value = FocalLoss(gamma=gamma)(logits, targets).item()
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-9)


@quick
@given(batches("multilabel", limit=8), gammas, st.none() | st.floats(0.01, 0.99))
def test_multilabel_loss_equals_the_slow_reference(batch, gamma, alpha):
    logits, targets = batch
    expected = reference.multilabel(logits.tolist(), targets.tolist(), gamma, alpha)
    value = make(targets, gamma=gamma, alpha=alpha)(logits, targets).item()
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("task", TASKS)
@quick
@given(data=st.data())
def test_gamma_zero_is_the_plain_loss_to_the_bit(task, dtype, data):
    batch = data.draw(batches(task, limit=100, dtype=dtype))
    assert equal_bits(FocalLoss(gamma=0.0, task=task), PlainLoss(task), *batch)


@quick
@given(any_batch, st.floats(0.2, 3))
def test_gradient_matches_finite_differences(batch, gamma):
    logits, targets = batch
    loss = make(targets, gamma=gamma)
    point = (logits / 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, targets), (point,))


@quick
@given(any_batch, gammas, gammas)
def test_a_higher_gamma_never_costs_more_and_nothing_costs_less_than_nothing(batch, one, two):
    logits, targets = batch
    low, high = (make(targets, gamma=gamma)(logits, targets).item() for gamma in sorted((one, two)))
    assert 0 <= high <= low * (1 + 1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("logit", [17.0, 120.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("task", TASKS)
def test_sure_answers_right_or_wrong_give_finite_losses_and_gradients(task, dtype, logit, gamma):
    """At γ < 1 the slope of (1 − p)^γ is infinite where 1 − p has been rounded to zero."""
    logits = torch.tensor([[logit, -logit], [logit, -logit]], dtype=dtype)
    targets = torch.tensor([0, 1]) if task == "multiclass" else torch.tensor([[1.0, 0], [0, 1]])
    each = FocalLoss(gamma=gamma, task=task, reduction="none")(logits, targets).reshape(2, -1)
    assert each[0].max() < 1e-4
    assert each[1].max().item() == pytest.approx(logit * (2 if task == "multiclass" else 1))
    _, slope = value_and_slope(FocalLoss(gamma=gamma, task=task), logits, targets)
    assert torch.isfinite(slope).all()


def test_the_factor_on_a_sure_and_right_answer_is_not_rounded_away():
    """1 − p = e^−20 / (1 + e^−20) to full precision, though p itself is one in single precision."""
    rest = math.exp(-20) / (1 + math.exp(-20))
    expected = rest**2 * math.log1p(math.exp(-20))
    logits = torch.tensor([[20.0, 0.0]], dtype=torch.float64)
    assert FocalLoss()(logits, torch.tensor([0])).item() == pytest.approx(expected, rel=1e-5, abs=0)


def test_a_single_class_costs_nothing():
    value, slope = value_and_slope(FocalLoss(), torch.tensor([[2.0]]), torch.tensor([0]))
    assert (value.item(), slope.item()) == (0, 0)


@pytest.mark.parametrize("task", TASKS)
def test_unknown_labels_count_nowhere(task):
    logits, targets = holey_batch(task)
    value, slope = value_and_slope(FocalLoss(task=task), logits, targets)
    unknown = targets == -100 if task == "multiclass" else targets.isnan()
    each = FocalLoss(task=task, reduction="none")(logits, targets)
    assert each.shape == targets.shape
    assert torch.all(each[unknown] == 0)
    assert torch.all(slope[unknown] == 0)
    torch.testing.assert_close(value, each[~unknown].mean())
    nothing = torch.full_like(targets, -100 if task == "multiclass" else NAN)
    assert FocalLoss(task=task)(logits, nothing).item() == 0


@pytest.mark.parametrize("task", TASKS)
def test_reductions_agree(task):
    logits, targets = holey_batch(task)
    each, total, mean = (
        FocalLoss(task=task, reduction=reduction)(logits, targets)
        for reduction in ("none", "sum", "mean")
    )
    torch.testing.assert_close(each.sum(), total)
    torch.testing.assert_close(total / (3 if task == "multiclass" else 11), mean)


@pytest.mark.parametrize("task", TASKS)
def test_it_fits_into_ordinary_code(task):
    check_drop_in(FocalLoss(task=task), task)
    assert list(FocalLoss(task=task).state_dict()) == []


def test_alpha_needs_negative_cases_and_so_multilabel_data():
    assert Focal().supports(Task.MULTICLASS)
    assert Focal(alpha=0.25).supports(Task.MULTILABEL)
    assert not Focal(alpha=0.25).supports(Task.MULTICLASS)
    with pytest.raises(ValueError, match="it is for multi-label data"):
        FocalLoss(alpha=0.25)


def test_the_spec_binds_with_every_hyper_parameter():
    loss = Focal(3.0, 0.25).bind(counts_of(3, 1), Task.MULTILABEL)
    assert repr(loss) == (
        "FocalLoss(task=multilabel, Focal(gamma=3.0, alpha=0.25), reduction=mean)"
    )
    assert Focal().diagnostics(counts_of(0, 4), Task.MULTICLASS) == []


def test_the_mean_weight_is_that_of_alpha_over_the_cases():
    """Three classes of 4 samples in all: 4 positives at ¼ and 8 negatives at ¾."""
    counts = counts_of(3, 1, 0)
    assert Focal().mean_weight(counts, Task.MULTICLASS) == 1.0
    assert Focal(alpha=0.25).mean_weight(counts, Task.MULTILABEL) == pytest.approx(7 / 12)
    assert Focal(alpha=0.25).mean_weight(counts_of(0, 0), Task.MULTILABEL) == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": -0.5}, "gamma must be a finite number of at least 0, not -0.5"),
        ({"gamma": NAN}, "gamma must be"),
        ({"gamma": float("inf")}, "gamma must be"),
        ({"alpha": 0.0}, "alpha must be None or between 0 and 1, not 0.0"),
        ({"alpha": 1.0}, "alpha must be"),
        ({"alpha": NAN}, "alpha must be"),
        ({"reduction": "average"}, "reduction must be one of mean, sum, none, not 'average'"),
        ({"task": "regression"}, "'regression' is not a valid Task"),
    ],
)
def test_a_bad_argument_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        FocalLoss(**{"task": "multilabel", **changes})


@pytest.mark.parametrize(
    ("logits", "targets", "task"),
    [((2, 3), (3,), "multiclass"), ((2, 3), (2,), "multilabel"), ((3,), (2,), "multilabel")],
)
def test_a_batch_of_the_wrong_shape_is_refused(logits, targets, task):
    with pytest.raises(ValueError, match=r"losses take logits"):
        FocalLoss(task=task)(torch.zeros(logits), torch.zeros(targets, dtype=torch.int64))
