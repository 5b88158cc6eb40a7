"""Class-balanced loss: known weights, three forms against a slow reference, laws, bad input."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedbb.losses.class_balanced import CBLoss, ClassBalanced
from fedbb.losses.cross_entropy import PlainLoss
from fedbb.losses.focal import FocalLoss
from fedbb.records import LabelCounts, Task
from helpers.batches import (
    NAN,
    batches,
    check_drop_in,
    counts_of,
    equal_bits,
    holey_batch,
    value_and_slope,
)
from helpers.cover import cover
from reference import class_balanced as reference

quick = settings(deadline=None, max_examples=20)
TASKS = ("multiclass", "multilabel")
FORMS = ("softmax", "sigmoid", "focal")
HUNDREDFOLD = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
TENFOLD = [5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645, 500]
SLOW = {
    ("multiclass", "softmax"): lambda *batch: reference.softmax(*batch[:3]),
    ("multiclass", "sigmoid"): lambda *batch: reference.sigmoid(*batch[:3], gamma=0),
    ("multiclass", "focal"): reference.sigmoid,
    ("multilabel", "softmax"): lambda *batch: reference.multilabel(*batch[:3], gamma=0),
    ("multilabel", "sigmoid"): lambda *batch: reference.multilabel(*batch[:3], gamma=0),
    ("multilabel", "focal"): reference.multilabel,
}


@pytest.fixture
def _float64_weights():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def make(task: str, **options) -> CBLoss:
    return CBLoss([90, 9, 1], samples=100, task=task, **options)


def some_counts(classes: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, 10**5), min_size=classes, max_size=classes)


def test_weights_of_long_tailed_cifar_are_the_known_ones():
    steep = [0.0506, 0.0769, 0.1211, 0.1950, 0.3188, 0.5246, 0.8683, 1.4426, 2.4092, 3.9927]
    flat = [0.2923, 0.3584, 0.4442, 0.5555, 0.6997, 0.8858, 1.1266, 1.4375, 1.8415, 2.3585]
    assert CBLoss(HUNDREDFOLD).weight.tolist() == pytest.approx(steep, abs=6e-5)
    assert CBLoss(TENFOLD).weight.tolist() == pytest.approx(flat, abs=6e-5)


@quick
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.floats(0, 0.999999))
def test_weights_sum_to_the_number_of_classes_and_absent_ones_weigh_nothing(counts, beta):
    weight = CBLoss(counts, beta=beta).weight
    assert torch.isfinite(weight).all()
    assert weight.sum().item() == pytest.approx(len(counts) if any(counts) else 0, rel=1e-5)
    assert ((weight == 0) == (torch.tensor(counts) == 0)).all()


def test_three_forms_of_one_sample_worked_by_hand():
    """β = ½ and counts 1, 2: 1/E = 1, ⅔, hence weights 1.2 and .8. All logits zero, so p = ½."""
    logits, targets = torch.zeros(1, 2), torch.tensor([0])
    by_hand = {"softmax": 1.2 * math.log(2), "sigmoid": 2.4 * math.log(2)}
    for form, expected in (by_hand | {"focal": 1.2 * math.log(2)}).items():
        loss = CBLoss([1, 2], beta=0.5, form=form)
        assert loss(logits, targets).item() == pytest.approx(expected)


@pytest.mark.usefixtures("_float64_weights")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("task", TASKS)
@quick
@given(data=st.data(), beta=st.floats(0, 0.99999), gamma=st.floats(0, 3))
def test_loss_equals_the_slow_reference(task, form, data, beta, gamma):
    logits, targets = data.draw(batches(task, limit=8))
    counts = data.draw(some_counts(logits.shape[1]))
    loss = CBLoss(counts, samples=10**6, task=task, beta=beta, form=form, gamma=gamma)
    weights = reference.weights(counts, beta)
    expected = SLOW[task, form](logits.tolist(), targets.tolist(), weights, gamma)
    assert loss(logits, targets).item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("task", TASKS)
@quick
@given(data=st.data())
def test_beta_zero_is_the_plain_loss_to_the_bit(task, dtype, data):
    batch = data.draw(batches(task, limit=100, dtype=dtype))
    counts = data.draw(some_counts(batch[0].shape[1]))
    loss = CBLoss(counts, samples=10**6, task=task, beta=0.0)
    assert equal_bits(loss, PlainLoss(task), *batch)


@quick
@given(batches("multilabel"), st.floats(0, 3))
def test_beta_zero_leaves_the_focal_loss_of_multilabel_data_to_the_bit(batch, gamma):
    options = {"task": "multilabel", "beta": 0.0, "form": "focal", "gamma": gamma}
    loss = CBLoss([7, 5, 3, 1][: batch[0].shape[1]], samples=9, **options)
    assert equal_bits(loss, FocalLoss(gamma=gamma, task="multilabel"), *batch)


@quick
@given(batches("multiclass"), st.data())
def test_the_sigmoid_form_is_bce_on_rows_of_one_and_zeros_weighted_by_sample(batch, data):
    logits, targets = batch
    loss = CBLoss(data.draw(some_counts(logits.shape[1])), form="sigmoid")
    rows = nn.functional.one_hot(targets, logits.shape[1]).to(logits)
    each = nn.functional.binary_cross_entropy_with_logits(logits, rows, reduction="none")
    expected = (loss.weight.to(logits)[targets] * each.sum(dim=1)).mean()
    torch.testing.assert_close(loss(logits, targets), expected)


@pytest.mark.parametrize("task", TASKS)
def test_the_focal_form_with_gamma_zero_is_the_sigmoid_form_to_the_bit(task):
    batch = holey_batch(task)
    assert equal_bits(make(task, form="focal", gamma=0.0), make(task, form="sigmoid"), *batch)


def test_multilabel_data_knows_no_softmax_so_that_form_is_bce():
    batch = holey_batch("multilabel")
    softmax, sigmoid = (make("multilabel", form=form) for form in ("softmax", "sigmoid"))
    assert equal_bits(softmax, sigmoid, *batch)


def test_mean_divides_by_the_batch_and_not_by_the_weights_as_torch_does():
    """In a batch of one class nn.CrossEntropyLoss(weight=w) loses the weight altogether."""
    logits, targets = torch.tensor([[2.0, 0, -1], [0.5, 0.5, 0]]), torch.tensor([2, 2])
    loss, plain = make("multiclass"), nn.CrossEntropyLoss()
    trap = nn.CrossEntropyLoss(weight=loss.weight)
    torch.testing.assert_close(trap(logits, targets), plain(logits, targets))
    torch.testing.assert_close(loss(logits, targets), loss.weight[2] * plain(logits, targets))


@pytest.mark.usefixtures("_float64_weights")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("task", TASKS)
def test_gradient_matches_finite_differences(task, form):
    logits, targets = holey_batch(task)
    point = logits.double().requires_grad_()
    loss = make(task, form=form, gamma=1.5)
    assert torch.autograd.gradcheck(lambda z: loss(z, targets), (point,))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("counts", [[0, 30, 10], [0, 40, 0], [0, 0, 0]])
def test_absent_classes_never_give_nan(counts, task, form):
    loss = CBLoss(counts, samples=40, task=task, form=form)
    value, slope = value_and_slope(loss, *holey_batch(task))
    assert torch.isfinite(value)
    assert torch.isfinite(slope).all()
    if task == "multilabel":
        assert torch.all(slope[:, 0] == 0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("task", TASKS)
def test_unknown_labels_count_nowhere(task, form):
    logits, targets = holey_batch(task)
    value, slope = value_and_slope(make(task, form=form), logits, targets)
    unknown = targets == -100 if task == "multiclass" else targets.isnan()
    each = make(task, form=form, reduction="none")(logits, targets)
    assert each.shape == targets.shape
    assert torch.all(each[unknown] == 0)
    assert torch.all(slope[unknown] == 0)
    torch.testing.assert_close(value, each[~unknown].mean())
    total = make(task, form=form, reduction="sum")(logits, targets)
    torch.testing.assert_close(total, each.sum())
    nothing = torch.full_like(targets, -100 if task == "multiclass" else NAN)
    assert make(task, form=form)(logits, nothing).item() == 0


@pytest.mark.parametrize(("form", "task"), cover(FORMS, TASKS))
def test_it_fits_into_ordinary_code(task, form):
    check_drop_in(make(task, form=form), task)


def test_the_weight_is_a_buffer_that_follows_the_module_and_is_not_saved():
    loss = make("multiclass")
    assert list(loss.parameters()) == []
    assert dict(loss.named_buffers())["weight"] is loss.weight
    assert loss.to(torch.float64).weight.dtype == torch.float64


def test_targets_are_counted_and_unknown_ones_are_not():
    loss = CBLoss.from_targets([0, 0, 2, -100], classes=4, beta=0.9, form="focal", gamma=2.0)
    assert loss.counts.positive.tolist() == [2, 0, 1, 0]
    assert (loss.spec, loss.reduction) == (ClassBalanced(0.9, "focal", 2.0), "mean")
    rows = torch.tensor([[1.0, NAN], [0, 1], [1, 1]])
    loss = CBLoss.from_targets(rows, task="multilabel", reduction="sum")
    assert loss.counts.positive.tolist() == [2, 2]
    assert loss.counts.negative.tolist() == [1, 0]


def test_the_spec_binds_to_counts_with_every_hyper_parameter():
    spec = ClassBalanced(0.9, "focal", 2.0)
    loss = spec.bind(counts_of(3, 1), Task.MULTILABEL)
    assert repr(loss) == f"CBLoss(task=multilabel, {spec}, reduction=mean)"
    assert loss.counts.positive.tolist() == [3, 1]
    assert all(ClassBalanced().supports(task) for task in Task)


@pytest.mark.parametrize("task", list(Task))
def test_the_mean_weight_is_that_of_the_loss_on_the_clients_own_uniform_guesses(task):
    """At zero logits every case costs the same, so only the weights tell CB from the plain loss."""
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor([90, 9, 1]))
    targets = labels if task is Task.MULTICLASS else nn.functional.one_hot(labels).float()
    spec, counts = ClassBalanced(), counts_of(90, 9, 1)
    batch = (torch.zeros(100, 3), targets)
    ratio = spec.bind(counts, task)(*batch) / PlainLoss(task)(*batch)
    assert ratio.item() == pytest.approx(spec.mean_weight(counts, task), rel=1e-5)


def test_the_mean_weight_of_a_client_without_samples_is_one_and_without_positives_zero():
    nothing = LabelCounts(np.zeros(2), np.full(2, 5.0), 5)
    assert ClassBalanced().mean_weight(nothing, Task.MULTILABEL) == 0.0
    assert ClassBalanced().mean_weight(nothing, Task.MULTICLASS) == 1.0
    assert "learns nothing" in ClassBalanced().diagnostics(nothing, Task.MULTILABEL)[0]


def test_a_saturated_beta_is_remarked_on():
    # β = 0.6: E is at its ceiling 2.5 for all of these counts.
    counts = counts_of(50, 400, 30)
    assert "weigh the same" in ClassBalanced(0.6).diagnostics(counts, Task.MULTICLASS)[0]
    assert ClassBalanced(0.9999).diagnostics(counts, Task.MULTICLASS) == []
    assert ClassBalanced(0.6).diagnostics(counts_of(50, 50, 0), Task.MULTICLASS) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positives": [-1, 2]}, "counts must be finite and at least 0"),
        ({"positives": []}, r"must be of one shape \(C,\)"),
        ({"task": "multilabel"}, "multi-label counts need negatives or samples"),
        ({"form": "hinge"}, "form must be one of softmax, sigmoid, focal, not 'hinge'"),
        ({"beta": 1.0}, r"beta must be in \[0, 1\), not 1.0"),
        ({"beta": NAN}, "beta must be in"),
        ({"gamma": -1.0}, "gamma must be a finite number of at least 0, not -1.0"),
        ({"reduction": "average"}, "reduction must be one of mean, sum, none, not 'average'"),
    ],
)
def test_a_bad_argument_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        CBLoss(**{"positives": [3, 1], **changes})


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_of_the_wrong_shape_is_refused_and_never_broadcast(form):
    loss = make("multiclass", form=form)
    with pytest.raises(ValueError, match="the loss knows 3 classes, the logits 4"):
        loss(torch.zeros(2, 4), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"These are \[2, 3\] and \[3\]"):
        loss(torch.zeros(2, 3), torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="the loss knows 3 classes, the logits 1"):
        make("multilabel", form=form)(torch.zeros(2, 1), torch.zeros(2, 1))


@pytest.mark.parametrize("label", [-1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_a_label_of_no_class_is_refused(form, label):
    with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
        make("multiclass", form=form)(torch.zeros(1, 3), torch.tensor([label]))
