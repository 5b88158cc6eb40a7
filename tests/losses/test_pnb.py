"""PNB loss: Eq. 6 and 8 against hand-worked numbers, a slow reference, and their laws."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor, nn

from fedbb.losses.pnb import PNBLoss
from reference import pnb as reference

quick = settings(deadline=None, max_examples=20)
NEXT_TO_ONE = float(np.nextafter(1.0, 0.0))  # α⁺ is then B / (A + B)
NAN = float("nan")
TASKS = ("multiclass", "multilabel")


@pytest.fixture(autouse=True, scope="module")
def _float64_weights():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def with_alphas(alphas: list[float], **options) -> PNBLoss:
    """Return a loss of these α⁺, built from counts that give them."""
    negatives = 100 * np.array(alphas)
    return PNBLoss(100 - negatives, negatives, beta=NEXT_TO_ONE, **options)


@st.composite
def batches(draw: st.DrawFn, task: str, limit: float = 20.0) -> tuple[Tensor, Tensor]:
    """Draw logits (N, C) and targets that fit the task."""
    samples, classes = draw(st.tuples(st.integers(1, 6), st.integers(2, 4)))
    logits = draw(hnp.arrays(np.float64, (samples, classes), elements=st.floats(-limit, limit)))
    shape = (samples,) if task == "multiclass" else (samples, classes)
    highest = classes - 1 if task == "multiclass" else 1
    targets = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, highest)))
    return torch.from_numpy(logits), torch.from_numpy(targets)


@st.composite
def cases(draw: st.DrawFn, **options) -> tuple[PNBLoss, Tensor, Tensor]:
    """Draw a loss of either task, built from any counts, and a batch for it."""
    task = draw(st.sampled_from(TASKS))
    logits, targets = draw(batches(task))
    pairs = st.lists(st.integers(0, 10**5), min_size=logits.shape[1], max_size=logits.shape[1])
    return PNBLoss(draw(pairs), draw(pairs), task=task, **options), logits, targets


def rebuild(loss: PNBLoss, **changes) -> PNBLoss:
    counts = loss.counts
    return PNBLoss(counts.positive, counts.negative, task=loss.task, **changes)


def plain(logits: Tensor, targets: Tensor) -> Tensor:
    if targets.ndim == 1:
        return F.cross_entropy(logits, targets)
    return F.binary_cross_entropy_with_logits(logits, targets.to(logits))


def test_multiclass_loss_of_two_samples_worked_by_hand():
    """4·.6·log(1 + e⁻² + e⁻³) and 4·.95·log(2e^.5 + 1)."""
    logits, targets = torch.tensor([[2.0, 0, -1], [0.5, 0.5, 0]]), torch.tensor([0, 2])
    each = with_alphas([0.6, 0.8, 0.95], mu=4, reduction="none")(logits, targets)
    by_hand = [2.4 * math.log(1 + math.exp(-2) + math.exp(-3)), 3.8 * math.log(2 * math.e**0.5 + 1)]
    assert each.tolist() == pytest.approx(by_hand, abs=1e-12)
    assert each.tolist() == pytest.approx([0.407630, 5.540476], abs=5e-7)
    mean = with_alphas([0.6, 0.8, 0.95], mu=4)(logits, targets)
    assert mean.item() == pytest.approx(2.974053, abs=5e-7)


def test_multilabel_loss_of_two_samples_worked_by_hand():
    """First entry: 4·.9²·log(1 + e⁻¹); its neighbor is a negative: 4·.7·.3·log(1 + e⁻²)."""
    logits, targets = torch.tensor([[1.0, -2], [0, 3]]), torch.tensor([[1.0, 0], [0, 1]])
    options = {"task": "multilabel", "mu": 4}
    each = with_alphas([0.9, 0.7], reduction="none", **options)(logits, targets)
    assert each[0].tolist() == pytest.approx(
        [3.24 * math.log(1 + math.exp(-1)), 0.84 * math.log(1 + math.exp(-2))], abs=1e-12
    )
    assert each.flatten().tolist() == pytest.approx(
        [1.014968, 0.106620, 0.249533, 0.095231], abs=5e-7
    )
    mean = with_alphas([0.9, 0.7], **options)(logits, targets)
    assert mean.item() == pytest.approx(0.366588, abs=5e-7)
    total = with_alphas([0.9, 0.7], reduction="sum", **options)(logits, targets)
    assert total.item() / 2 == pytest.approx(0.733176, abs=1e-6)


@quick
@given(cases(mu=3.0))
def test_loss_equals_the_naive_form_where_that_is_finite(case):
    loss, logits, targets = case
    naive = reference.multiclass if targets.ndim == 1 else reference.multilabel
    alphas = loss.alpha_positive.tolist()
    expected = naive(logits.tolist(), targets.tolist(), alphas, mu=3.0)
    assert loss(logits, targets).item() == pytest.approx(expected, rel=1e-6, abs=1e-12)


@quick
@given(cases())
def test_gradient_matches_finite_differences(case):
    loss, logits, targets = case
    point = (logits / 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, targets), (point,))


@quick
@given(cases(mu=1.0), st.floats(0.01, 100))
def test_loss_is_linear_in_mu_and_never_negative(case, mu):
    loss, logits, targets = case
    once = loss(logits, targets).item()
    assert once >= 0
    scaled = rebuild(loss, mu=mu)(logits, targets).item()
    assert scaled == pytest.approx(mu * once, rel=1e-9)


@quick
@given(st.sampled_from(TASKS).flatmap(batches), st.integers(1, 10**6), st.floats(0, 0.999999))
def test_equal_cases_give_the_plain_loss_times_a_constant(batch, count, beta):
    """α = ½ everywhere: one factor in Eq. 8, two in Eq. 6."""
    logits, targets = batch
    task, factor = ("multiclass", 1 / 2) if targets.ndim == 1 else ("multilabel", 1 / 4)
    even = [count] * logits.shape[1]
    loss = PNBLoss(even, even, task=task, beta=beta, mu=4.0)
    expected = 4 * factor * plain(logits, targets)
    torch.testing.assert_close(loss(logits, targets), expected)


@quick
@given(batches("multilabel"), st.data(), st.floats(0.1, 10))
def test_beta_zero_gives_a_quarter_of_mu_times_bce_whatever_the_counts(batch, data, mu):
    logits, targets = batch
    some = st.lists(st.integers(1, 10**6), min_size=logits.shape[1], max_size=logits.shape[1])
    loss = PNBLoss(data.draw(some), data.draw(some), task="multilabel", beta=0.0, mu=mu)
    torch.testing.assert_close(loss(logits, targets), mu / 4 * plain(logits, targets))


@pytest.mark.parametrize("logit", [1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("task", TASKS)
def test_extreme_logits_give_finite_losses_and_gradients(task, logit, dtype):
    logits = torch.tensor([[logit, -logit], [logit, logit]], dtype=dtype, requires_grad=True)
    targets = torch.tensor([0, 1]) if task == "multiclass" else torch.tensor([[1.0, 0], [0, 1]])
    loss = PNBLoss([5, 20], [20, 5], task=task)(logits, targets)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("task", TASKS)
def test_sure_and_right_predictions_cost_nothing(task):
    logits = torch.tensor([[60.0, -60.0], [-60.0, 60.0]])
    targets = torch.tensor([0, 1]) if task == "multiclass" else torch.eye(2)
    assert PNBLoss([5, 20], [20, 5], task=task)(logits, targets).item() < 1e-20


@quick
@given(cases(), st.randoms(use_true_random=False))
def test_order_of_samples_does_not_matter(case, random):
    loss, logits, targets = case
    order = random.sample(range(len(logits)), len(logits))
    torch.testing.assert_close(loss(logits[order], targets[order]), loss(logits, targets))


@quick
@given(cases(reduction="none"), st.randoms(use_true_random=False))
def test_order_of_classes_permutes_the_entries(case, random):
    loss, logits, targets = case
    order = random.sample(range(logits.shape[1]), logits.shape[1])
    counts = (loss.counts.positive[order], loss.counts.negative[order])
    permuted = PNBLoss(*counts, task=loss.task, reduction="none")
    expected = loss(logits, targets)
    if targets.ndim == 1:
        targets = torch.tensor([order.index(int(target)) for target in targets])
    else:
        targets, expected = targets[:, order], expected[:, order]
    torch.testing.assert_close(permuted(logits[:, order], targets), expected)


@quick
@given(batches("multiclass"), st.floats(0.1, 10))
def test_multiclass_form_is_cross_entropy_with_weights_mu_alpha_over_the_batch(batch, mu):
    logits, targets = batch
    loss = PNBLoss(range(1, logits.shape[1] + 1), mu=mu)
    total = F.cross_entropy(logits, targets, mu * loss.alpha_positive, reduction="sum")
    torch.testing.assert_close(loss(logits, targets), total / len(targets))


def test_mean_divides_by_the_batch_and_not_by_the_weights_as_torch_does():
    """nn.CrossEntropyLoss(weight=μ·α) gives the same number for every μ: there μ is lost."""
    logits, targets = torch.tensor([[2.0, 0, -1], [0.5, 0.5, 0]]), torch.tensor([0, 2])
    once, four = PNBLoss([900, 90, 10], mu=1.0), PNBLoss([900, 90, 10], mu=4.0)
    trap = [nn.CrossEntropyLoss(weight=loss.positive_weight) for loss in (once, four)]
    torch.testing.assert_close(trap[0](logits, targets), trap[1](logits, targets))
    torch.testing.assert_close(four(logits, targets), 4 * once(logits, targets))


@pytest.mark.parametrize("task", TASKS)
def test_a_class_without_positives_has_a_gradient_without_nan(task):
    loss = PNBLoss([0, 30, 10], samples=40, task=task)
    assert loss.alpha_positive[0] == 1
    logits = torch.zeros(2, 3, requires_grad=True)
    targets = torch.tensor([1, 2]) if task == "multiclass" else torch.eye(3)[1:]
    loss(logits, targets).backward()
    assert torch.isfinite(logits.grad).all()
    if task == "multilabel":  # α⁻ is zero: an absent class is not even pushed down
        assert logits.grad[:, 0].tolist() == [0, 0]


@pytest.mark.parametrize("task", TASKS)
def test_a_client_of_a_single_class_has_no_loss_and_no_gradient(task):
    """Its class has no negatives, so α⁺ = 0; every other class has no positives, so α⁻ = 0."""
    loss = PNBLoss([50, 0, 0], samples=50, task=task, mu=4.0)
    logits = torch.tensor([[-3.0, 2.0, 1.0]], requires_grad=True)
    targets = torch.tensor([0]) if task == "multiclass" else torch.tensor([[1.0, 0, 0]])
    value = loss(logits, targets)
    value.backward()
    assert value.item() == 0
    assert logits.grad.tolist() == [[0, 0, 0]]


def test_alpha_min_lets_a_client_of_a_single_class_learn():
    loss = PNBLoss([50, 0, 0], alpha_min=0.05, mu=4.0)
    assert loss.alpha_positive.tolist() == pytest.approx([0.05, 0.95, 0.95])
    assert loss.alpha_negative.tolist() == pytest.approx([0.95, 0.05, 0.05])
    value = loss(torch.zeros(1, 3), torch.tensor([0]))
    assert value.item() == pytest.approx(4 * 0.05 * math.log(3))


@quick
@given(batches("multilabel"), st.data())
def test_unknown_labels_count_nowhere(batch, data):
    logits, targets = batch
    unknown = torch.from_numpy(data.draw(hnp.arrays(np.bool_, tuple(targets.shape))))
    holey = targets.to(torch.float64).masked_fill(unknown, NAN)
    loss = PNBLoss([7, 5, 3, 1][: logits.shape[1]], samples=9, task="multilabel", reduction="none")
    known_entries = loss(logits, targets)[~unknown]
    loss.reduction = "mean"
    point = logits.clone().requires_grad_()
    value = loss(point, holey)
    value.backward()
    expected = known_entries.mean().item() if len(known_entries) else 0.0
    assert value.item() == pytest.approx(expected)
    assert torch.all(point.grad[unknown] == 0)
    assert torch.isfinite(point.grad).all()


def test_a_row_of_unknown_labels_changes_nothing_and_a_batch_of_them_costs_nothing():
    loss = PNBLoss([7, 5], samples=9, task="multilabel")
    logits = torch.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
    with_empty_row = loss(logits, torch.tensor([[1, 0], [NAN, NAN]]))
    torch.testing.assert_close(with_empty_row, loss(logits[:1], torch.tensor([[1.0, 0]])))
    nothing = loss(logits, torch.full((2, 2), NAN))
    nothing.backward()
    assert nothing.item() == 0
    assert logits.grad.tolist() == [[0, 0], [0, 0]]


def test_multiclass_samples_marked_with_minus_100_count_nowhere():
    loss = PNBLoss([7, 5])
    logits = torch.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
    value = loss(logits, torch.tensor([1, -100]))
    torch.testing.assert_close(value, loss(logits[:1], torch.tensor([1])))
    value.backward()
    assert logits.grad[1].tolist() == [0, 0]
    assert loss(logits, torch.tensor([-100, -100])).item() == 0
