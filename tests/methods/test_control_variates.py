"""SCAFFOLD's and FedDyn's clients: steps on f(x) = x²/2, worked out by hand."""

import pytest
import torch
from torch import nn

from fedbb.methods.feddyn import DynamicRegularizer
from fedbb.methods.scaffold import ControlVariate
from fedbb.penalties.base import Anchors, LocalResult
from fedbb.records import ModelState
from fedbb.training.config import LocalConfig
from fedbb.training.loop import effective_steps


class Point(nn.Module):
    def __init__(self, x):
        super().__init__()
        self.x = nn.Parameter(torch.tensor([x], dtype=torch.float64))


def state(x):
    return ModelState({"x": torch.tensor([x], dtype=torch.float64)}, {})


def descend(bound, point, optimizer, steps):
    """Take steps on x²/2 plus the penalty, and return the values of the penalty."""
    values = []
    for _ in range(steps):
        optimizer.zero_grad()
        penalty = bound.value(None)
        ((point.x**2 / 2).sum() + penalty).backward()
        optimizer.step()
        values.append(penalty.item())
    return values


@pytest.mark.parametrize(
    ("momentum", "trained", "control"), [(0.0, 0.867, 0.965), (0.9, 0.804, 0.975862069)]
)
def test_two_steps_and_the_next_control_variate(momentum, trained, control):
    # c − c_k = −0.3. Without momentum: 1 − 0.1·0.7 = 0.93, 0.93 − 0.1·0.63 = 0.867, and
    # c_k' = 0.5 − 0.2 + (1 − 0.867)/(0.1·2). With ρ = 0.9: 0.93 − 0.1·(0.9·0.7 + 0.63) = 0.804 and
    # a = 1 + 1.9 = 2.9.
    point = Point(1.0)
    kept = {"x": torch.tensor([0.5], dtype=torch.float64)}
    broadcast = {"scaffold.x": torch.tensor([0.2], dtype=torch.float64)}
    bound = ControlVariate().bind(Anchors(point, state(1.0), None, broadcast, kept))
    optimizer = torch.optim.SGD(point.parameters(), lr=0.1, momentum=momentum)
    values = descend(bound, point, optimizer, 2)
    assert values == [0.0, 0.0]
    assert point.x.item() == pytest.approx(trained, abs=1e-12)
    steps = effective_steps(2, LocalConfig(momentum=momentum))
    end = ModelState({"x": point.x.detach()}, {})
    after = bound.keep(LocalResult(state(1.0), end, steps, 0.1))
    assert after["x"].item() == pytest.approx(control, abs=1e-9)


def test_at_a_stationary_point_of_feddyn_its_gradient_is_the_clients_own():
    # θ − 0.3 + 0.1·(θ − 1) = 0 gives θ = 0.4/1.1, which is f'(θ); g' = 0.3 − 0.1·(θ − 1) is it too.
    point = Point(1.0)
    kept = {"x": torch.tensor([0.3], dtype=torch.float64)}
    bound = DynamicRegularizer(alpha=0.1).bind(Anchors(point, state(1.0), None, {}, kept))
    descend(bound, point, torch.optim.SGD(point.parameters(), lr=0.5), 100)
    assert point.x.item() == pytest.approx(0.4 / 1.1, abs=1e-12)
    end = ModelState({"x": point.x.detach()}, {})
    after = bound.keep(LocalResult(state(1.0), end, 100.0, 0.5))
    assert after["x"].item() == pytest.approx(0.363636364, abs=1e-9)


def test_the_value_of_feddyns_penalty_is_as_written():
    # −0.3·(2 − 1) + 0.05·(2 − 1)²
    kept = {"x": torch.tensor([0.3], dtype=torch.float64)}
    bound = DynamicRegularizer(alpha=0.1).bind(Anchors(Point(2.0), state(1.0), None, {}, kept))
    assert bound.value(None).item() == pytest.approx(-0.25, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"alpha": 0.0}, "alpha must be a finite number above 0"), ({"clip": 0.0}, "clip must be")],
)
def test_bad_values_of_feddyn_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DynamicRegularizer(**options)
