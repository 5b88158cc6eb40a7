"""What PNBLoss can be built from, and what it refuses, by name."""

import inspect

import numpy as np
import pytest
import torch

from fedbb.losses.class_balanced import CBLoss
from fedbb.losses.fedbb_plus import FedBBPlusLoss
from fedbb.losses.logit_adjusted import LogitAdjustedLoss
from fedbb.losses.logit_calibrated import FedLCLoss
from fedbb.losses.pnb import PNB, PNBLoss
from fedbb.records import LabelCounts, Task
from helpers.columns import NA, Column

NAN = float("nan")
LABELS = [0, 0, 2, 1, 0]
ROWS = [[0.0, 1.0, NAN], [0.0, 0.0, 1.0]]


def counts_of(loss: PNBLoss) -> tuple[list[float], list[float], int]:
    return loss.counts.positive.tolist(), loss.counts.negative.tolist(), loss.counts.samples


@pytest.mark.parametrize("targets", [LABELS, np.array(LABELS, np.int32), torch.tensor(LABELS)])
def test_multiclass_targets_are_counted_from_lists_arrays_and_tensors(targets):
    assert counts_of(PNBLoss.from_targets(targets)) == ([3, 1, 1], [2, 4, 4], 5)


@pytest.mark.parametrize("targets", [ROWS, np.array(ROWS, np.float32), torch.tensor(ROWS)])
def test_multilabel_targets_are_counted_from_lists_arrays_and_tensors(targets):
    loss = PNBLoss.from_targets(targets, task="multilabel")
    assert counts_of(loss) == ([0, 1, 1], [2, 1, 0], 2)


COUNTED = [PNBLoss, CBLoss, FedLCLoss, LogitAdjustedLoss, FedBBPlusLoss]
ANIMALS = ["dog", "cat", "dog", "horse", "dog"]


@pytest.mark.parametrize("loss", COUNTED)
@pytest.mark.parametrize("wrap", [list, np.array, lambda names: np.array(names, object), Column])
def test_text_targets_are_counted_by_sorted_class_names(loss, wrap):
    made = loss.from_targets(wrap(ANIMALS))
    assert made.class_names == ("cat", "dog", "horse")
    assert made.counts.positive.tolist() == [1, 3, 1]
    plain = loss.from_targets([1, 0, 1, 2, 1])
    assert plain.class_names is None
    logits, targets = torch.eye(3), torch.arange(3)
    assert torch.equal(made(logits, targets), plain(logits, targets))


def test_given_names_set_the_order_and_add_absent_classes():
    loss = PNBLoss.from_targets(ANIMALS, classes=["horse", "ant", "dog", "cat"])
    assert loss.class_names == ("horse", "ant", "dog", "cat")
    assert loss.counts.positive.tolist() == [1, 0, 3, 1]
    assert [row.name for row in loss.explain()] == ["horse", "ant", "dog", "cat"]
    with pytest.raises(ValueError, match="label 'cat' is none of the 2 classes"):
        PNBLoss.from_targets(ANIMALS, classes=["dog", "horse"])
    with pytest.raises(ValueError, match="need the names of the classes, not their number"):
        PNBLoss.from_targets(ANIMALS, classes=3)


def test_nullable_numbers_are_counted_and_missing_ones_refused():
    assert counts_of(PNBLoss.from_targets(Column([0, 2, 2]))) == ([1, 0, 2], [2, 3, 1], 3)
    with pytest.raises(ValueError, match="must be whole numbers"):
        PNBLoss.from_targets(Column([0, NA, 2]))
    with pytest.raises(ValueError, match="label 1 is <NA> among text"):
        PNBLoss.from_targets(Column(["a", NA]))
    rows = Column([[0, 1], [NA, 1]])
    assert counts_of(PNBLoss.from_targets(rows, task="multilabel")) == ([0, 2], [1, 0], 2)


@pytest.mark.parametrize("loss", COUNTED)
def test_from_targets_names_every_option_of_the_constructor(loss):
    given = inspect.signature(loss.from_targets).parameters
    assert all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in given.values())
    options = dict(inspect.signature(loss).parameters)
    for name in ("positives", "negatives", "samples"):
        options.pop(name, None)
    assert {name: given[name].default for name in options} == {
        name: option.default for name, option in options.items()
    }


@pytest.mark.parametrize("task", list(Task))
def test_by_default_the_mean_weight_over_the_counts_is_one(task):
    loss = PNBLoss([900, 90, 10], samples=1000, task=task)
    cases = loss.counts.positive @ loss.positive_weight.double().numpy()
    cases += loss.counts.negative @ loss.negative_weight.double().numpy()
    whole = 1000 if task is Task.MULTICLASS else 3000
    assert cases / whole == pytest.approx(1)
    assert PNB().mu == 4.0


def test_classes_absent_at_the_end_are_given_by_their_number():
    loss = PNBLoss.from_targets(LABELS, classes=5, mu=3.0, reduction="sum")
    assert counts_of(loss) == ([3, 1, 1, 0, 0], [2, 4, 4, 5, 5], 5)
    assert (loss.spec.mu, loss.reduction) == (3.0, "sum")


def test_the_elements_of_a_mask_are_counted_except_those_to_ignore():
    mask = torch.tensor([[[0, 1], [255, 1]], [[0, 0], [255, 2]]], dtype=torch.uint8)
    assert counts_of(PNBLoss.from_targets(mask, ignore_index=255)) == ([3, 2, 1], [3, 4, 5], 6)
    labels = torch.stack((mask == 0, mask == 1), dim=1)
    loss = PNBLoss.from_targets(labels, task="multilabel")
    assert counts_of(loss) == ([3, 2], [5, 6], 8)


def test_soft_labels_count_in_part_and_integers_may_mark_the_unknown():
    loss = PNBLoss.from_targets([[0.25, NAN], [1.0, 0.5]], task="multilabel")
    assert counts_of(loss) == ([1.25, 0.5], [0.75, 0.5], 2)
    with pytest.raises(ValueError, match=r"soft labels must be .* from 0 to 1"):
        PNBLoss.from_targets([[0.5, 2.0]], task="multilabel")
    loss = PNBLoss.from_targets([[1, -1], [0, 1]], task="multilabel", ignore_index=-1)
    assert counts_of(loss) == ([1, 1], [1, 0], 2)


def test_targets_on_a_graph_are_counted_all_the_same():
    targets = torch.tensor([[0.0, 1.0]], requires_grad=True)
    assert counts_of(PNBLoss.from_targets(targets, task=Task.MULTILABEL)) == ([0, 1], [1, 0], 1)


@pytest.mark.parametrize("positives", [[3, 1], (3, 1), np.array([3, 1]), torch.tensor([3, 1])])
def test_negatives_follow_from_the_positives_or_from_the_samples(positives):
    assert counts_of(PNBLoss(positives)) == ([3, 1], [1, 3], 4)
    assert counts_of(PNBLoss(positives, samples=6)) == ([3, 1], [3, 5], 6)
    assert counts_of(PNBLoss(positives, [2, 2])) == ([3, 1], [2, 2], 5)


def test_the_spec_binds_to_counts_with_every_hyper_parameter():
    spec = PNB(beta=0.9, tau=2.0, mu=3.0, class_factor="effective", alpha_min=0.1)
    counts = LabelCounts(np.array([3.0, 1.0]), np.array([1.0, 2.0]), 4)
    loss = spec.bind(counts, Task.MULTILABEL)
    assert isinstance(loss, PNBLoss)
    assert (loss.spec, loss.task, loss.reduction) == (spec, Task.MULTILABEL, "mean")
    assert counts_of(loss) == ([3, 1], [1, 2], 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positives": [-1, 2]}, "counts must be finite and at least 0"),
        ({"positives": [NAN, 2]}, "counts must be finite and at least 0"),
        ({"positives": [float("inf"), 2]}, "counts must be finite and at least 0"),
        ({"negatives": [-1, 2]}, "counts must be finite and at least 0"),
        ({"samples": 2}, "are there more positives than samples"),
        ({"samples": -1}, "are there more positives than samples"),
        ({"negatives": [5, 5], "samples": 6}, "exceed the 6 samples"),
        ({"negatives": [5, 5, 5]}, r"must be of one shape \(C,\)"),
        ({"negatives": 5}, r"must be of one shape \(C,\)"),
        ({"positives": [[1, 2]]}, r"must be of one shape \(C,\)"),
        ({"positives": 3}, r"must be of one shape \(C,\)"),
        ({"positives": []}, r"must be of one shape \(C,\)"),
        ({"task": "multilabel"}, "multi-label counts need negatives or samples"),
        ({"task": "regression"}, "'regression' is not a valid Task"),
        ({"reduction": "average"}, "reduction must be one of mean, sum, none, not 'average'"),
        ({"class_factor": "beta"}, "class_factor must be one of alpha, effective, not 'beta'"),
        ({"beta": 1.0}, r"beta must be in \[0, 1\), not 1.0"),
        ({"beta": -0.1}, "beta must be in"),
        ({"beta": 1.1}, "beta must be in"),
        ({"beta": NAN}, "beta must be in"),
        ({"tau": 0.0}, "tau must be a finite number above 0, not 0.0"),
        ({"tau": -1.0}, "tau must be"),
        ({"tau": float("inf")}, "tau must be"),
        ({"mu": 0.0}, 'mu must be a finite number above 0 or "unit", not 0.0'),
        ({"mu": -4.0}, "mu must be"),
        ({"mu": NAN}, "mu must be"),
        ({"mu": float("inf")}, "mu must be"),
        ({"mu": "one"}, "mu must be"),
        ({"alpha_min": -0.1}, r"alpha_min must be in \[0, 0.5\], not -0.1"),
        ({"alpha_min": 0.6}, "alpha_min must be in"),
        ({"alpha_min": NAN}, "alpha_min must be in"),
        ({"label_smoothing": 1.1}, r"label_smoothing must be in \[0, 1\], not 1.1"),
        ({"label_smoothing": NAN}, "label_smoothing must be in"),
    ],
)
def test_a_bad_argument_is_refused_by_name(changes, message):
    arguments = {"positives": [3, 1], **changes}
    with pytest.raises(ValueError, match=message):
        PNBLoss(**arguments)


@pytest.mark.parametrize("beta", [0.0, 1 - 1e-12, float(np.nextafter(1.0, 0.0))])
@pytest.mark.parametrize("task", list(Task))
def test_betas_at_the_ends_of_their_range_give_finite_weights(beta, task):
    loss = PNBLoss([3, 0, 10**6], samples=10**6, task=task, beta=beta)
    assert all(torch.isfinite(buffer).all() for buffer in loss.buffers())


@pytest.mark.parametrize(
    ("targets", "task", "message"),
    [
        ([], "multiclass", "targets are empty"),
        (np.zeros((0, 3)), "multilabel", "targets are empty"),
        ([0, NAN], "multiclass", "multi-class labels must be whole numbers"),
        ([0, float("inf")], "multiclass", "multi-class labels must be whole numbers"),
        ([0, 0.5], "multiclass", "multi-class labels must be whole numbers"),
        ([0, -1], "multiclass", "multi-class labels must be whole numbers"),
        (3, "multiclass", r"must have shape \(N,\), not \(\)"),
        (ROWS, "multiclass", r"must have shape \(N,\), not \(2, 3\)"),
        (LABELS, "multilabel", r"must have shape \(N, 3\), not \(5,\)"),
        ([[0, 2]], "multilabel", "must be 0, 1 or NaN"),
    ],
)
def test_targets_that_cannot_be_counted_are_refused(targets, task, message):
    with pytest.raises(ValueError, match=message):
        PNBLoss.from_targets(targets, task=task)


@pytest.mark.parametrize(
    ("logits", "targets", "task", "message"),
    [
        ((2, 4), (2,), "multiclass", "the loss knows 3 classes, the logits 4"),
        ((2, 1), (2, 1), "multilabel", "the loss knows 3 classes, the logits 1"),
        ((2, 3), (3,), "multiclass", r"These are \[2, 3\] and \[3\]"),
        ((2, 3), (2, 3), "multiclass", r"These are \[2, 3\] and \[2, 3\]"),
        ((3,), (), "multiclass", r"These are \[3\] and \[\]"),
        ((), (), "multiclass", r"These are \[\] and \[\]"),
        ((2, 3, 5), (2, 4), "multiclass", r"These are \[2, 3, 5\] and \[2, 4\]"),
        ((2, 3), (2,), "multilabel", r"one shape, .* not \[2, 3\] and \[2\]"),
        ((2, 3), (1, 3), "multilabel", r"one shape, .* not \[2, 3\] and \[1, 3\]"),
        ((3,), (3,), "multilabel", "the loss knows 3 classes, the logits 1"),
        ((3,), (3,), "multiclass", "the loss knows 3 classes, the logits 2"),
    ],
)
def test_a_batch_of_the_wrong_shape_is_refused_and_never_broadcast(logits, targets, task, message):
    loss = PNBLoss([3, 1, 1], samples=5, task=task)
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(logits), torch.zeros(targets, dtype=torch.int64))
