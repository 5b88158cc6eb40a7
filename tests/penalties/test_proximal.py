import pytest
import torch

from fedbb.penalties.base import Anchors
from fedbb.penalties.proximal import Proximal
from fedbb.state import snapshot
from helpers.toy import toy_network


def moved(model, by):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by)


def test_the_penalty_is_half_mu_times_the_squared_distance():
    model = toy_network()
    penalty = Proximal(mu=0.3).bind(Anchors(model, snapshot(model), None))
    moved(model, 0.5)
    number = sum(parameter.numel() for parameter in model.parameters())
    # Every parameter is half away: (0.3 / 2) · number · 0.25.
    assert penalty(None).item() == pytest.approx(0.3 / 2 * number * 0.25, rel=1e-5)


def test_its_gradient_is_mu_times_the_distance_and_zero_at_the_start():
    model = toy_network()
    penalty = Proximal(mu=0.3).bind(Anchors(model, snapshot(model), None))
    for by in (0.0, 0.5):
        moved(model, by)
        model.zero_grad()
        penalty(None).backward()
        for parameter in model.parameters():
            assert torch.allclose(parameter.grad, torch.full_like(parameter, 0.3 * by), atol=1e-6)


def test_buffers_are_left_out():
    model = toy_network()
    penalty = Proximal(mu=1.0).bind(Anchors(model, snapshot(model), None))
    model.first[1].running_mean.add_(5)
    assert penalty(None).item() == 0


@pytest.mark.parametrize("mu", [-0.1, float("inf"), float("nan")])
def test_a_strength_that_is_no_pull_is_refused(mu):
    with pytest.raises(ValueError, match="mu must be"):
        Proximal(mu)
