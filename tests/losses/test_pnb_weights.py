"""What PNB multiplies with: its mean, the unit scale, and the chest X-ray tables."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbb.losses.pnb import PNB, PNBLoss, weigh
from fedbb.records import LabelCounts, Task
from reference.chest_xray14 import FINDINGS, IMAGES
from reference.cifar10_split import label_counts

quick = settings(deadline=None, max_examples=20)
NAN = float("nan")

POSITIVES, ALPHAS, *PANELS = (np.array(column) for column in zip(*FINDINGS.values(), strict=True))
RAW, INTER_CASE, BOTH = PANELS
SEVEN_NINES = PNB(beta=0.9999999, tau=10.0)


def counts_of(positive: np.ndarray, samples: int) -> LabelCounts:
    return LabelCounts(positive.astype(float), (samples - positive).astype(float), samples)


def percentages(positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Return (C, 2): each class's share of the loss when every entry costs the same."""
    parts = np.stack([positive * POSITIVES, negative * (IMAGES - POSITIVES)], axis=1)
    return 100 * parts / parts.sum()


def chest_weights(spec: PNB = SEVEN_NINES):
    return weigh(spec, counts_of(POSITIVES, IMAGES), Task.MULTILABEL)


def test_chest_alphas_are_the_known_ones_and_tau_does_nothing():
    alphas = chest_weights().alpha_positive
    np.testing.assert_allclose(alphas, ALPHAS, atol=6e-5)
    np.testing.assert_allclose(alphas, 1 - POSITIVES / IMAGES, atol=5e-4)
    without_tau = chest_weights(PNB(beta=0.9999999, tau=1.0)).alpha_positive
    np.testing.assert_allclose(alphas, without_tau, atol=5e-4)


def test_chest_shares_of_the_loss_are_the_known_ones():
    weights = chest_weights()
    ones = np.ones(len(FINDINGS))
    np.testing.assert_allclose(percentages(ones, ones), RAW, atol=5.1e-3)
    first = percentages(weights.alpha_positive, weights.alpha_negative)
    np.testing.assert_allclose(first, INTER_CASE, atol=5.1e-3)
    both = percentages(weights.positive, weights.negative)
    np.testing.assert_allclose(both, BOTH, atol=5.1e-3)
    np.testing.assert_allclose(both.sum(axis=0), [49.99, 50.01], atol=5.1e-3)


def test_the_second_alpha_hardly_evens_out_the_classes():
    weights = chest_weights()
    first = percentages(weights.alpha_positive, weights.alpha_negative).sum(axis=1)
    both = percentages(weights.positive, weights.negative).sum(axis=1)
    assert first.max() / first.min() == pytest.approx(72.2, abs=0.05)
    assert both.max() / both.min() == pytest.approx(59.5, abs=0.05)


def test_the_effective_class_factor_does_even_out_the_classes():
    weights = chest_weights(PNB(beta=0.9999999, tau=10.0, class_factor="effective"))
    totals = percentages(weights.positive, weights.negative).sum(axis=1)
    assert (round(totals.min(), 1), round(totals.max(), 1)) == (6.2, 7.5)


def test_multiclass_effective_factor_is_the_class_balanced_loss():
    """LT-CIFAR-10 at 1 : 100; the weights sum to the number of classes."""
    positives = [int(5000 * 0.01 ** (number / 9)) for number in range(10)]
    loss = PNBLoss(positives, class_factor="effective", mu=1.0)
    known = [0.0506, 0.0769, 0.1211, 0.1950, 0.3188, 0.5246, 0.8683, 1.4426, 2.4092, 3.9927]
    np.testing.assert_allclose(loss.positive_weight, known, atol=5e-5)
    assert loss.positive_weight.sum().item() == pytest.approx(10)


def test_alphas_of_the_long_tail_span_less_than_a_factor_of_two():
    positives = [int(5000 * 0.01 ** (number / 9)) for number in range(10)]
    alphas = PNBLoss(positives, beta=0.999).alpha_positive
    assert (round(alphas.min().item(), 2), round(alphas.max().item(), 2)) == (0.50, 0.95)


@pytest.mark.parametrize(
    ("concentration", "low", "high", "mean"),
    [
        (0.1, 1.25, 2.87, 2.29),
        (0.5, 2.5, 3.2, 2.90),
    ],
)
def test_mean_weights_of_the_cifar10_split_are_the_known_ones(concentration, low, high, mean):
    table = label_counts(concentration)
    found = [PNB().mean_weight(counts_of(row, row.sum()), Task.MULTICLASS) for row in table]
    digits = len(str(low)) - 2
    assert [round(min(found), digits), round(max(found), digits)] == [low, high]
    assert np.mean(found) == pytest.approx(mean, abs=5e-3)


def test_mean_weights_of_an_even_client_and_of_chest_images_are_the_known_ones():
    even = counts_of(np.full(10, 500), 5000)
    assert PNB().mean_weight(even, Task.MULTICLASS) == pytest.approx(3.53, abs=5e-3)
    assert chest_weights().mean == pytest.approx(0.34, abs=5e-3)


def test_mean_weight_worked_by_hand():
    """β = ½: E(1) = 1, E(2) = 1.5, so α⁺ = .6 for one of three, .4 for two of three."""
    counts = LabelCounts(np.array([1.0, 2.0]), np.array([2.0, 1.0]), 3)
    spec = PNB(beta=0.5, mu=2.0)
    assert spec.mean_weight(counts, Task.MULTICLASS) == pytest.approx(2 * (0.6 + 2 * 0.4) / 3)
    entries = 0.36 + 2 * 0.24 + 2 * 0.16 + 0.24
    assert spec.mean_weight(counts, Task.MULTILABEL) == pytest.approx(2 * entries / 6)


@quick
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=40), st.sampled_from(["alpha", "effective"])
)
def test_unit_scale_makes_the_mean_weight_one_on_multiclass_targets(labels, class_factor):
    labels = [0, 1, *labels]
    targets = torch.tensor(labels)
    options = {"mu": "unit", "class_factor": class_factor, "reduction": "none"}
    loss = PNBLoss.from_targets(targets, classes=5, **options)
    each = loss(torch.zeros(len(labels), 5), targets) / np.log(5)
    assert each.mean().item() == pytest.approx(1, rel=1e-5)


@quick
@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 20), st.integers(1, 4)),
        elements=st.sampled_from([0.0, 1.0, NAN]),
    ),
    st.sampled_from(["alpha", "effective"]),
)
def test_unit_scale_makes_the_mean_weight_one_on_multilabel_targets(labels, class_factor):
    both = np.array([0.0, 1.0], dtype=np.float32)[:, np.newaxis].repeat(labels.shape[1], axis=1)
    targets = torch.from_numpy(np.concatenate([labels, both]))
    options = {"mu": "unit", "class_factor": class_factor, "reduction": "none"}
    loss = PNBLoss.from_targets(targets, task="multilabel", **options)
    each = loss(torch.zeros(targets.shape), targets) / np.log(2)
    known = int((~targets.isnan()).sum())
    assert each.sum().item() / known == pytest.approx(1, rel=1e-5)


def test_unit_scale_of_cases_that_all_weigh_nothing_is_one():
    counts = LabelCounts(np.array([9.0, 0.0]), np.array([0.0, 9.0]), 9)
    weights = weigh(PNB(mu="unit"), counts, Task.MULTICLASS)
    assert weights.positive.tolist() == [0.0, 1.0]
    assert weights.mean == 0.0


def test_weights_of_no_cases_at_all_are_defined():
    weights = weigh(PNB(mu=4.0), LabelCounts(np.zeros(2), np.zeros(2), 0), Task.MULTILABEL)
    assert weights.alpha_positive.tolist() == [0.5, 0.5]
    assert weights.positive.tolist() == weights.negative.tolist() == [1.0, 1.0]
    assert weights.mean == 4.0


@quick
@given(
    hnp.arrays(np.float64, (2, 4), elements=st.integers(0, 10**6).map(float)),
    st.floats(0, 0.5),
    st.sampled_from(list(Task)),
)
def test_alpha_min_bounds_both_alphas_and_keeps_their_sum(table, least, task):
    weights = weigh(PNB(alpha_min=least), LabelCounts(table[0], table[1], 10**6), task)
    for alpha in (weights.alpha_positive, weights.alpha_negative):
        assert np.all(alpha >= least - 1e-15)
        assert np.all(alpha <= 1 - least + 1e-15)
    np.testing.assert_allclose(weights.alpha_positive + weights.alpha_negative, 1, atol=1e-15)
