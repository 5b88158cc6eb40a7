"""Variance of stochastic gradients: what a factor changes, and losses at the same model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from studies.gradient_variance import LOSSES, compare_losses, spread
from torch import nn

import fedbb


def test_a_factor_changes_the_variance_by_its_square_and_the_relative_one_not_at_all():
    gradients = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    variance, square = spread(gradients)
    scaled = spread(3 * gradients)
    assert scaled == pytest.approx((9 * variance, 9 * square))
    assert variance == pytest.approx(float(np.cov(gradients.numpy().T).trace()))


def test_losses_are_compared_on_the_same_batches_of_a_client():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (64, 1, 4, 4), dtype=np.uint8)
    labels = np.arange(64) % 10
    data = fedbb.Dataset.from_arrays(images, labels, images, labels, normalize=True)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 10))
    even = compare_losses(network, data, np.arange(60), seed=0)
    assert list(even) == list(LOSSES)
    skewed = compare_losses(network, data, np.flatnonzero(labels < 2)[:12], seed=0)
    assert all(np.isfinite(value) for pair in skewed.values() for value in pair)
    # Classes of equal size have equal weights, whose mean is one.
    assert even["PNB, unit mean weight"] == pytest.approx(even["cross-entropy"], rel=1e-5)
