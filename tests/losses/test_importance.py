"""FedIR: published weights and losses, mean weight one, and FedAvg where mixtures are equal."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.losses.cross_entropy import PlainLoss
from fedbb.losses.importance import (
    ImportanceWeighted,
    ImportanceWeightedLoss,
    importance_weights,
)
from fedbb.records import LabelCounts, Task
from helpers.batches import counts_of, equal_bits, holey_batch

MULTICLASS, MULTILABEL = Task
WHOLE = counts_of(50, 30, 20)
LOGITS = torch.tensor([[2.0, 0, -1], [0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]])
TARGETS = torch.tensor([0, 0, 1, 2])


def labels_of(positive: list[float], negative: list[float]) -> LabelCounts:
    return LabelCounts(np.array(positive, float), np.array(negative, float), samples=0)


def test_weights_have_the_published_values():
    weights = importance_weights(counts_of(6, 3, 1), WHOLE, MULTICLASS).positive
    assert weights.tolist() == pytest.approx([0.8333333, 1, 2])
    weights = importance_weights(counts_of(6, 3, 0), WHOLE, MULTICLASS).positive
    assert weights.tolist() == [0.9375, 1.125, 0]
    label = importance_weights(labels_of([2], [8]), labels_of([30], [70]), MULTILABEL)
    assert (label.positive.tolist(), label.negative.tolist()) == ([1.5], [0.875])


@pytest.mark.parametrize(("normalize", "value"), [("client", 0.648555641), ("batch", 0.555904835)])
def test_loss_of_a_batch_has_the_published_value(normalize, value):
    spec = ImportanceWeighted(normalize)
    loss = ImportanceWeightedLoss(counts_of(6, 3, 1), WHOLE, MULTICLASS, spec)
    assert loss(LOGITS, TARGETS).item() == pytest.approx(value, abs=1e-6)
    weight = torch.tensor([5 / 6, 1, 2])
    theirs = torch.nn.CrossEntropyLoss(weight, reduction="mean")(LOGITS, TARGETS)
    assert (theirs.item() == pytest.approx(value, abs=1e-6)) == (normalize == "batch")


def test_loss_of_labels_has_the_published_value():
    spec = ImportanceWeighted()
    loss = ImportanceWeightedLoss(
        labels_of([2], [8]), labels_of([30], [70]), MULTILABEL, spec, "none"
    )
    each = loss(torch.tensor([[1.0], [-2.0]]), torch.tensor([[1.0], [0.0]])).flatten().tolist()
    assert each == pytest.approx([0.469892531, 0.111062010], abs=1e-7)
    assert sum(each) / 2 == pytest.approx(0.290477270, abs=1e-7)


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("normalize", ["client", "batch"])
def test_equal_mixtures_are_the_plain_loss_to_the_bit(task, normalize):
    own, whole = labels_of([6, 3, 1], [4, 7, 9]), labels_of([60, 30, 10], [40, 70, 90])
    loss = ImportanceWeightedLoss(own, whole, task, ImportanceWeighted(normalize))
    assert equal_bits(loss, PlainLoss(task), *holey_batch(task))


@given(
    own=st.lists(st.integers(0, 1000), min_size=3, max_size=3).filter(any),
    others=st.lists(st.integers(0, 1000), min_size=3, max_size=3),
    most=st.sampled_from([1.0, 2.0, np.inf]),
)
def test_the_mean_weight_of_a_clients_samples_is_one(own, others, most):
    counts = counts_of(*own)
    whole = counts_of(*np.add(own, others))
    weights = importance_weights(counts, whole, MULTICLASS, most=most).positive
    assert weights @ counts.positive / counts.positive.sum() == pytest.approx(1.0)
    assert np.all(weights <= most * (1 + 1e-12))
    assert np.all((weights > 0) == (counts.positive > 0))
    scaled = importance_weights(counts_of(*np.multiply(own, 7)), whole, MULTICLASS, most=most)
    assert scaled.positive == pytest.approx(weights)


@given(sizes=st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any))
def test_by_batch_is_torchs_weighted_cross_entropy(sizes):
    targets = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    logits = torch.linspace(-2, 2, 3 * len(targets)).reshape(-1, 3)
    weights = importance_weights(counts_of(600, 300, 1), WHOLE, MULTICLASS).positive
    assert weights.max() > 100
    for reduction in ("mean", "sum"):
        loss = ImportanceWeightedLoss(
            counts_of(600, 300, 1), WHOLE, MULTICLASS, ImportanceWeighted(), reduction
        )
        theirs = torch.nn.CrossEntropyLoss(torch.tensor(weights).float(), reduction=reduction)
        assert loss(logits, targets).item() == pytest.approx(
            theirs(logits, targets).item(), rel=1e-5
        )


def test_a_client_of_one_class_trains_as_in_fedavg():
    loss = ImportanceWeightedLoss(counts_of(0, 9, 0), WHOLE, MULTICLASS, ImportanceWeighted())
    assert loss.positive_weight.tolist() == [0, 1, 0]


def test_unknown_labels_count_nowhere_by_batch_either():
    own, whole = labels_of([2, 5], [8, 5]), labels_of([30, 50], [70, 50])
    loss = ImportanceWeightedLoss(own, whole, MULTILABEL, ImportanceWeighted("batch"))
    logits = torch.tensor([[1.0, 3.0], [-2.0, 0.5]])
    holey = loss(logits, torch.tensor([[1.0, float("nan")], [0.0, float("nan")]]))
    entries = torch.tensor([0.469892531, 0.111062010])
    assert holey.item() == pytest.approx(entries.sum().item() / (1.5 + 0.875), abs=1e-6)


@pytest.mark.parametrize("options", [{"normalize": "sum"}, {"most": 0.5}, {"most": float("nan")}])
def test_a_bad_value_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        ImportanceWeighted(**options)
