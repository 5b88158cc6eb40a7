import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.training.config import LocalConfig
from fedbb.training.sgd import SGD, effective_steps
from reference.fednova import accumulated


@pytest.mark.parametrize(
    ("steps", "mass"),
    [(1, 1.0), (2, 2.9), (10, 41.381060), (37, 281.824800), (100, 910.002391)],
)
def test_known_step_masses_at_momentum_nine_tenths(steps, mass):
    assert effective_steps(steps, LocalConfig(momentum=0.9)) == pytest.approx(mass, abs=1e-6)


@given(st.integers(1, 300), st.floats(0, 0.99))
def test_the_recursion_equals_the_closed_form(steps, momentum):
    expected = accumulated(steps, momentum)
    assert effective_steps(steps, LocalConfig(momentum=momentum)) == pytest.approx(
        expected, rel=1e-6
    )


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_mass_is_how_far_a_constant_gradient_carries(nesterov, steps):
    plan = LocalConfig(lr=1.0, momentum=0.9, nesterov=nesterov, weight_decay=0.0)
    model = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.zeros_(model.weight)
    optimizer = SGD(model, plan, None)
    for _ in range(steps):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
    assert -model.weight.item() == pytest.approx(effective_steps(steps, plan))


def test_a_kept_momentum_goes_on_as_if_nothing_had_happened():
    plan = LocalConfig(lr=0.1)
    together, apart = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    apart.load_state_dict(together.state_dict())
    optimizer, momentum = SGD(together, plan, None), None
    for _ in range(3):
        for parameter in together.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        fresh = SGD(apart, plan, momentum)
        for parameter in apart.parameters():
            parameter.grad = torch.ones_like(parameter)
        fresh.step()
        momentum = fresh.momentum()
    assert torch.equal(together.weight, apart.weight)


def test_an_optimizer_without_momentum_has_none_to_keep():
    model = torch.nn.Linear(2, 1)
    assert SGD(model, LocalConfig(momentum=0.0)).momentum() is None


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 1e-2])
def test_a_step_is_torchs_own_to_the_bit(nesterov, decay):
    plan = LocalConfig(lr=0.1, nesterov=nesterov, weight_decay=decay)
    ours, theirs = torch.nn.Conv2d(2, 3, 2), torch.nn.Conv2d(2, 3, 2)
    theirs.load_state_dict(ours.state_dict())
    descent = SGD(ours, plan)
    usual = torch.optim.SGD(
        theirs.parameters(), 0.1, momentum=0.9, nesterov=nesterov, weight_decay=decay
    )
    images = torch.linspace(-1, 1, 2 * 2 * 5 * 5).reshape(2, 2, 5, 5)
    for _ in range(4):
        for model, optimizer in ((ours, descent), (theirs, usual)):
            optimizer.zero_grad()
            model(images).square().sum().backward()
            optimizer.step()
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


def test_a_parameter_without_a_gradient_stays_and_has_no_momentum():
    model = torch.nn.Linear(2, 1)
    before = model.bias.detach().clone()
    descent = SGD(model, LocalConfig())
    model.weight.grad = torch.ones_like(model.weight)
    descent.step()
    assert torch.equal(model.bias, before)
    assert descent.momentum() is None
