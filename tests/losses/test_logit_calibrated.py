"""FedLC's loss: known margins, pairwise references, laws, absent classes, the printed form."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.imbalance import count_labels
from fedbb.losses.cross_entropy import CrossEntropy, PlainLoss
from fedbb.losses.logit_calibrated import (
    Calibrated,
    Calibration,
    FedLCLoss,
    LogitCalibrated,
    margins,
)
from fedbb.losses.pnb import PNB, weigh
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
from reference import fedlc as reference

quick = settings(deadline=None, max_examples=20)
taus = st.floats(0, 15)


@pytest.fixture
def _float64_margins():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def printed(counts: list[int], **options) -> FedLCLoss:
    with pytest.warns(RuntimeWarning, match="no lower bound"):
        return FedLCLoss(counts, denominator="paper", **options)


@st.composite
def client_batches(draw: st.DrawFn) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """Draw the counts of a client, at least two classes of which have samples, and its batch."""
    logits, targets = draw(batches("multiclass", limit=8))
    classes = logits.shape[1]
    several = st.lists(st.integers(0, 10**5), min_size=classes, max_size=classes)
    counts = draw(several.filter(lambda counts: sum(count > 0 for count in counts) > 1))
    held = [number for number, count in enumerate(counts) if count]
    return counts, logits, torch.tensor([held[int(target) % len(held)] for target in targets])


def test_margins_are_the_known_ones_above_the_smallest():
    known = [1, 0.562, 0.316, 0.211, 0.178, 0.119]
    margin = FedLCLoss([1, 10, 100, 500, 1000, 5000]).margin + 5000**-0.25
    assert margin.tolist() == pytest.approx(known, abs=6e-4)
    tenfold = FedLCLoss([1, 5000], tau=10.0).margin
    assert tenfold.tolist() == pytest.approx([10 - 1.19, 0], abs=6e-3)


def test_loss_of_two_samples_worked_by_hand():
    """n = 16, 1: margins ½, 1. The classes' logits part by ½: ln(1 + e^−½) and ln(1 + e^½)."""
    logits, targets = torch.zeros(2, 2), torch.tensor([0, 1])
    each = FedLCLoss([16, 1], reduction="none")(logits, targets).tolist()
    assert each == pytest.approx([math.log1p(math.exp(-0.5)), math.log1p(math.exp(0.5))])
    literal = printed([16, 1], reduction="none")(logits, targets).tolist()
    assert literal == pytest.approx([-0.5, 0.5])


@pytest.mark.usefixtures("_float64_margins")
@quick
@given(client_batches(), taus)
def test_loss_equals_the_slow_reference(batch, tau):
    counts, logits, targets = batch
    arguments = (logits.tolist(), targets.tolist(), counts, tau)
    value = FedLCLoss(counts, tau=tau)(logits, targets).item()
    assert value == pytest.approx(reference.stable(*arguments), rel=1e-6, abs=1e-9)
    literal = printed(counts, tau=tau)(logits, targets).item()
    assert literal == pytest.approx(reference.printed(*arguments), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@quick
@given(data=st.data(), count=st.integers(0, 10**6), tau=taus)
def test_equal_counts_are_cross_entropy_to_the_bit(dtype, data, count, tau):
    batch = data.draw(batches("multiclass", limit=100, dtype=dtype))
    loss = FedLCLoss([count] * batch[0].shape[1], tau=tau)
    assert equal_bits(loss, PlainLoss(Task.MULTICLASS), *batch)


@quick
@given(batches("multiclass"))
def test_tau_zero_is_cross_entropy_to_the_bit_where_no_class_is_absent(batch):
    loss = FedLCLoss(range(1, batch[0].shape[1] + 1), tau=0.0)
    assert equal_bits(loss, PlainLoss(Task.MULTICLASS), *batch)


@pytest.mark.usefixtures("_float64_margins")
@quick
@given(client_batches(), taus, st.booleans())
def test_gradient_matches_finite_differences(batch, tau, stable):
    counts, logits, targets = batch
    loss = FedLCLoss(counts, tau=tau) if stable else printed(counts, tau=tau)
    point = (logits / 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, targets), (point,))


@pytest.mark.parametrize("tau", [0.0, 1.0, 15.0])
@pytest.mark.parametrize("shift", [-1e4, 0.0, 1e4])
def test_an_absent_class_has_no_probability_and_no_gradient_whatever_its_logit(shift, tau):
    logits = torch.tensor([[1.0, 2.0 + shift, -1.0], [0.5, shift, 0.0]])
    targets = torch.tensor([0, 1])
    value, slope = value_and_slope(FedLCLoss([30, 0, 10], tau=tau), logits, targets * 2)
    rest = FedLCLoss([30, 10], tau=tau)
    expected, of_rest = value_and_slope(rest, logits[:, [0, 2]], targets)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(slope[:, [0, 2]], of_rest)
    assert slope[:, 1].tolist() == [0, 0]


@pytest.mark.parametrize("level", [-1e4, 0.0, 1e4])
def test_an_absent_class_stays_dropped_at_any_level_of_the_logits(level):
    logits = torch.tensor([[level, level + 1, level - 1]])
    value, slope = value_and_slope(FedLCLoss([30, 0, 30]), logits, torch.tensor([0]))
    assert value.item() == pytest.approx(math.log1p(math.exp(-1)), rel=1e-3)
    assert slope[0, 1] == 0


@pytest.mark.parametrize("denominator", ["stable", "paper"])
def test_a_client_of_a_single_class_has_no_loss_and_no_gradient(denominator):
    loss = FedLCLoss([0, 50, 0]) if denominator == "stable" else printed([0, 50, 0])
    value, slope = value_and_slope(loss, torch.tensor([[3.0, -2, 1]]), torch.tensor([1]))
    assert value.item() == 0
    assert slope.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("counts", [[0, 30, 10], [0, 40, 0], [0, 0, 0]])
@pytest.mark.parametrize("denominator", ["stable", "paper"])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_zero_counts_never_give_nan_not_even_for_a_label_that_was_not_counted(
    counts, denominator, scale
):
    loss = FedLCLoss(counts) if denominator == "stable" else printed(counts)
    logits, targets = holey_batch("multiclass")
    value, slope = value_and_slope(loss, scale * logits, targets)
    assert torch.isfinite(value)
    assert torch.isfinite(slope).all()


def test_a_label_that_was_not_counted_costs_much_and_does_not_move_its_own_logit():
    logits = torch.tensor([[1.0, -5.0, 1.0]])
    value, slope = value_and_slope(FedLCLoss([30, 0, 30]), logits, torch.tensor([1]))
    assert value.item() > 1e4
    assert slope.tolist() == [[0.5, 0, 0.5]]


def test_the_printed_form_has_no_lower_bound_and_the_stable_one_has():
    logits, targets = torch.tensor([[1.0, 0], [0, 1]]), torch.tensor([0, 1])
    literal, stable = printed([3, 1]), FedLCLoss([3, 1])
    for scale in (10.0, 100.0, 1000.0):
        assert literal(scale * logits, targets).item() == pytest.approx(-scale)
        assert stable(scale * logits, targets).item() >= 0


def test_the_printed_form_warns_once_and_never_while_it_scores():
    with pytest.warns(RuntimeWarning, match='Train with "stable"') as caught:
        loss = FedLCLoss([3, 1], denominator="paper")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    loss(torch.zeros(1, 2), torch.tensor([0]))


@pytest.mark.parametrize("denominator", ["stable", "paper"])
def test_unknown_labels_count_nowhere(denominator):
    counts = [90, 9, 1]
    loss = FedLCLoss(counts) if denominator == "stable" else printed(counts)
    logits, targets = holey_batch("multiclass")
    value, slope = value_and_slope(loss, logits, targets)
    torch.testing.assert_close(value, loss(logits[:3], targets[:3]))
    assert slope[3].tolist() == [0, 0, 0]
    assert loss(logits, torch.full((4,), -100)).item() == 0
    loss.reduction = "none"
    each = loss(logits, targets)
    assert (each.shape, each[3].item()) == ((4,), 0)
    torch.testing.assert_close(each.sum() / 3, value)


@pytest.mark.parametrize("counts", [[90, 9, 1], [90, 0, 10]])
@pytest.mark.parametrize("denominator", ["stable", "paper"])
def test_it_fits_into_ordinary_code(counts, denominator):
    loss = FedLCLoss(counts) if denominator == "stable" else printed(counts)
    if counts[1]:
        check_drop_in(loss, Task.MULTICLASS)
    half = copy.deepcopy(loss).to(torch.bfloat16)
    logits, targets = torch.eye(3), torch.tensor([0, 2, 2])
    torch.testing.assert_close(half(logits, targets), loss(logits, targets), rtol=0.02, atol=0.02)


def test_the_margin_is_a_buffer_that_follows_the_module_and_is_not_saved():
    loss = FedLCLoss([90, 9, 0])
    assert dict(loss.named_buffers())["margin"] is loss.margin
    assert loss.to(torch.float64).margin.dtype == torch.float64


def test_the_printed_form_takes_class_numbers_alone():
    with pytest.raises(ValueError, match="takes class numbers"):
        printed([3, 1])(torch.zeros(2, 2), torch.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="has no label smoothing"):
        FedLCLoss([3, 1], denominator="paper", label_smoothing=0.1)


def test_targets_are_counted_and_unknown_ones_are_not():
    loss = FedLCLoss.from_targets([0, 0, 2, -100], classes=4, tau=2.0, reduction="sum")
    assert loss.counts.positive.tolist() == [2, 0, 1, 0]
    assert repr(loss) == (
        "FedLCLoss(task=multiclass, LogitCalibrated(tau=2.0, denominator='stable'), reduction=sum)"
    )


def test_multilabel_data_is_refused_with_the_reason():
    spec = LogitCalibrated()
    assert spec.supports(Task.MULTICLASS)
    assert not spec.supports(Task.MULTILABEL)
    for build in (
        lambda: spec.bind(counts_of(3, 1), Task.MULTILABEL),
        lambda: FedLCLoss([3, 1], task="multilabel"),
        lambda: FedLCLoss.from_targets([[1.0, 0.0]], task="multilabel"),
    ):
        with pytest.raises(ValueError, match="multi-label data has no softmax"):
            build()


def test_the_spec_binds_to_counts_with_every_hyper_parameter():
    spec = LogitCalibrated(0.5, "paper")
    with pytest.warns(RuntimeWarning, match="no lower bound"):
        loss = spec.bind(counts_of(3, 1), Task.MULTICLASS)
    assert (loss.spec, loss.reduction) == (spec, "mean")
    assert loss.counts.positive.tolist() == [3, 1]


def test_a_client_of_one_class_is_remarked_on_and_weighs_nothing():
    spec = LogitCalibrated()
    assert "learns nothing" in spec.diagnostics(counts_of(0, 40, 0), Task.MULTICLASS)[0]
    assert spec.mean_weight(counts_of(0, 40, 0), Task.MULTICLASS) == 0.0
    assert spec.diagnostics(counts_of(1, 40, 0), Task.MULTICLASS) == []
    assert spec.mean_weight(counts_of(1, 40, 0), Task.MULTICLASS) == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positives": [-1, 2]}, "counts must be finite and at least 0"),
        ({"positives": [[1, 2]]}, r"must be of one shape \(C,\)"),
        ({"tau": -1.0}, "tau must be a finite number of at least 0, not -1.0"),
        ({"tau": NAN}, "tau must be"),
        ({"tau": float("inf")}, "tau must be"),
        ({"denominator": "full"}, "denominator must be one of stable, paper, not 'full'"),
        ({"reduction": "average"}, "reduction must be one of mean, sum, none, not 'average'"),
    ],
)
def test_a_bad_argument_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        FedLCLoss(**{"positives": [3, 1], **changes})


@pytest.mark.parametrize("denominator", ["stable", "paper"])
def test_a_batch_that_does_not_fit_is_refused(denominator):
    loss = FedLCLoss([3, 1]) if denominator == "stable" else printed([3, 1])
    with pytest.raises(ValueError, match="the loss knows 2 classes, the logits 3"):
        loss(torch.zeros(2, 3), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"These are \[2, 2\] and \[2, 2\]"):
        loss(torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.int64))
    for label in (-1, 2):
        with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
            loss(torch.zeros(1, 2), torch.tensor([label]))


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


def test_unknown_labels_before_another_loss_count_nowhere():
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
