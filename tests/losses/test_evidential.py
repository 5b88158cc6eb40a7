"""Evidential loss: published values, beliefs that sum to one, and torch's own Dirichlet."""

import math

import pytest
import torch
from torch.distributions import Dirichlet, kl_divergence

from fedbb.losses.evidential import (
    Evidential,
    EvidentialLoss,
    excess_evidence,
    expected_error,
    opinion,
)
from fedbb.records import Task
from helpers.batches import check_drop_in, counts_of, value_and_slope

ALPHA = torch.tensor([[5.0, 1.0, 2.0]], dtype=torch.float64)


def logits_of(alpha):
    """Return the logits whose softplus plus one is α; a large negative number stands for α = 1."""
    evidence = alpha - 1
    return torch.where(evidence > 0, torch.expm1(evidence).log(), -60.0)


@pytest.mark.parametrize(
    ("label", "parts"),
    [(0, (0.21875 + 0.05902778, 0.26527896)), (1, (1.21875 + 0.05902778, 1.02300796))],
)
def test_error_and_excess_evidence_are_the_published_ones(label, parts):
    truth = torch.nn.functional.one_hot(torch.tensor([label]), 3).double()
    assert expected_error(ALPHA, truth).item() == pytest.approx(parts[0], abs=1e-8)
    assert excess_evidence(ALPHA, truth).item() == pytest.approx(parts[1], abs=1e-8)
    loss = EvidentialLoss()(logits_of(ALPHA), torch.tensor([label]))
    assert loss.item() == pytest.approx(sum(parts), abs=1e-7)


def test_the_loss_of_softplus_evidence_is_the_published_one():
    logits = torch.tensor([[2.0, 0.0, -1.0]], dtype=torch.float64)
    assert EvidentialLoss()(logits, torch.tensor([0])).item() == pytest.approx(0.58962841, abs=1e-8)
    assert opinion(logits)[2].item() == pytest.approx(0.48913015, abs=1e-8)


def test_the_opinion_is_the_published_one_and_beliefs_and_uncertainty_sum_to_one():
    shares, beliefs, uncertainty = opinion(logits_of(ALPHA))
    assert shares[0].tolist() == pytest.approx([0.625, 0.125, 0.25])
    assert beliefs[0].tolist() == pytest.approx([0.5, 0, 0.125])
    assert (beliefs.sum() + uncertainty).item() == pytest.approx(1)


def test_excess_evidence_is_the_divergence_of_torchs_dirichlet_distributions():
    generator = torch.Generator().manual_seed(0)
    alpha = 1 + 5 * torch.rand(4, 3, dtype=torch.float64, generator=generator)
    truth = torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 0]), 3).double()
    rest = torch.where(truth == 1, 1.0, alpha)
    theirs = kl_divergence(Dirichlet(rest), Dirichlet(torch.ones_like(rest)))
    torch.testing.assert_close(excess_evidence(alpha, truth), theirs)
    draws = Dirichlet(alpha[0]).sample((200_000,))
    error = (draws - truth[0]).square().sum(dim=1).mean().item()
    assert expected_error(alpha, truth)[0].item() == pytest.approx(error, rel=0.02)


def test_it_fits_into_ordinary_code_and_skips_unknown_labels():
    check_drop_in(EvidentialLoss(), "multiclass")
    assert EvidentialLoss()(torch.randn(2, 3), torch.tensor([-100, -100])).item() == 0


def test_its_size_beside_the_plain_loss_is_that_of_even_predictions():
    counts = counts_of(5, 3, 2)
    slope = value_and_slope(EvidentialLoss(), torch.zeros(1, 3).double(), torch.tensor([0]))[1]
    plain = value_and_slope(
        torch.nn.CrossEntropyLoss(), torch.zeros(1, 3).double(), torch.tensor([0])
    )[1]
    expected = slope.norm().item() / plain.norm().item()
    assert Evidential().mean_weight(counts, Task.MULTICLASS) == pytest.approx(expected)
    assert not Evidential().supports(Task.MULTILABEL)


@pytest.mark.parametrize("kl", [-1.0, math.inf])
def test_a_bad_value_is_refused(kl):
    with pytest.raises(ValueError, match="kl must be a finite number of at least 0"):
        EvidentialLoss(kl=kl)
