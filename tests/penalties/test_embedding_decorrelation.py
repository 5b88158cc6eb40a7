import pytest
import torch

from fedbb.penalties.embedding import Decorrelation, squared_correlations


def test_three_samples_have_the_published_value():
    rows = torch.tensor([[1.0, 2], [3, 1], [5, 6]], dtype=torch.float64)
    assert squared_correlations(rows).item() == pytest.approx(0.761904759, abs=1e-8)


def test_it_is_as_many_times_the_mean_squared_correlation_as_there_are_samples():
    rows = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    correlations = torch.corrcoef(rows.T) * (9 - 1)
    off = correlations.square().sum() - correlations.diagonal().square().sum()
    assert squared_correlations(rows).item() == pytest.approx(off.item() / 12 / 9, rel=1e-6)


def test_one_sample_or_one_dimension_has_no_correlation_and_dead_dimensions_a_gradient():
    for shape in ((1, 4), (4, 1)):
        rows = torch.ones(shape, requires_grad=True)
        squared_correlations(rows).backward()
        assert rows.grad.tolist() == torch.zeros(shape).tolist()
    dead = torch.tensor([[0.0, 1.0], [0.0, 2.0]], requires_grad=True)
    squared_correlations(dead).backward()
    assert torch.isfinite(dead.grad).all()


def test_a_strength_below_zero_is_refused():
    with pytest.raises(ValueError, match="beta must be"):
        Decorrelation(-1.0)
