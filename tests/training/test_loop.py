import math
import subprocess
import sys
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedbb.training.config import LocalConfig
from fedbb.training.loop import SUMMED_STEPS, LocalOptimizer, effective_steps
from helpers.cover import few
from reference.fednova import accumulated

ADAM = ("adam", "adamw")


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
@pytest.mark.parametrize("momentum", [1e-300, 0.5, 0.9, 0.999, 1 - 1e-9])
def test_beyond_a_million_steps_the_closed_form_continues_the_sum(momentum, nesterov):
    config = LocalConfig(momentum=momentum, nesterov=nesterov)
    last, beyond = (effective_steps(SUMMED_STEPS + more, config) for more in (0, 1))
    carried = (1 - momentum ** (SUMMED_STEPS + 1)) / (1 - momentum)
    step = 1 + momentum * carried if nesterov else carried
    assert beyond == pytest.approx(last + step, rel=1e-8)


@pytest.mark.parametrize("momentum", [0.0, 0.9, math.nextafter(1, 0)])
def test_a_number_of_steps_that_nobody_takes_is_not_counted_one_by_one(momentum):
    begun = time.monotonic()
    counted = effective_steps(2**53 - 1, LocalConfig(momentum=momentum))
    assert time.monotonic() - begun < 1
    assert 2**53 - 1 <= counted < math.inf


@pytest.mark.parametrize("name", ADAM)
def test_a_step_of_adam_counts_as_one(name):
    assert effective_steps(7, LocalConfig(optimizer=name)) == 7.0


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_mass_is_how_far_a_constant_gradient_carries(nesterov, steps):
    plan = LocalConfig(lr=1.0, momentum=0.9, nesterov=nesterov, weight_decay=0.0)
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    optimizer = LocalOptimizer(model, plan, plan.lr)
    for _ in range(steps):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
    assert -model.weight.item() == pytest.approx(effective_steps(steps, plan))


class Net(nn.Module):
    """Parameters of many shapes: a frozen one, one without a gradient, and one used only later."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 3, 2)
        self.frozen = nn.Conv2d(3, 4, 1)
        self.frozen.weight.requires_grad = False
        self.last = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.unused = nn.Parameter(torch.ones(2))
        self.late = nn.Parameter(torch.ones(3))

    def forward(self, images, step):
        hidden = self.frozen(self.first(images).relu()).mean(dim=(2, 3))
        logits = self.last(hidden) * self.scale
        return logits * self.late if step >= 2 else logits


def nets():
    torch.manual_seed(0)
    nets = [Net().to(memory_format=torch.channels_last) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    return nets


def train(model, optimizer, steps):
    images = torch.linspace(-1, 1, 2 * 2 * 5 * 5).reshape(2, 2, 5, 5)
    for step in steps:
        optimizer.zero_grad()
        model(images, step).square().sum().backward()
        optimizer.step()


def torchs_own(model, plan):
    if plan.optimizer == "sgd":
        options = {"momentum": plan.momentum, "nesterov": plan.nesterov}
    else:
        options = {"betas": plan.betas, "eps": plan.eps}
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    return kind[plan.optimizer](
        model.parameters(), lr=plan.lr, weight_decay=plan.weight_decay, **options
    )


PLANS = [
    LocalConfig(lr=0.1, nesterov=nesterov, weight_decay=decay)
    for nesterov in (False, True)
    for decay in (0.0, 1e-2)
] + [
    LocalConfig(lr=0.01, weight_decay=decay, optimizer=name, **options)
    for name in ADAM
    for decay in (0.0, 1e-2)
    for options in ({}, {"betas": (0.5, 0.9), "eps": 1e-3})
]


def equal(one, two):
    pairs = zip(one.parameters(), two.parameters(), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_every_step_is_torchs_own_to_the_bit(plan):
    ours, theirs = nets()
    optimizer, usual = LocalOptimizer(ours, plan, plan.lr), torchs_own(theirs, plan)
    for step in range(5):
        train(ours, optimizer, [step])
        train(theirs, usual, [step])
        assert equal(ours, theirs)
    assert not torch.equal(ours.first.weight, nets()[0].first.weight)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_kept_state_goes_on_as_if_nothing_had_happened(plan):
    together, apart = nets()
    train(together, LocalOptimizer(together, plan, plan.lr), range(6))
    state = {}
    for step in range(6):
        optimizer = LocalOptimizer(apart, plan, plan.lr, state)
        train(apart, optimizer, [step])
        state = optimizer.state()
    assert equal(together, apart)


@pytest.mark.parametrize("plan", [PLANS[1], PLANS[-1]], ids=str)
def test_a_parameter_without_a_gradient_stays_and_has_no_state(plan):
    model, before = nets()
    optimizer = LocalOptimizer(model, plan, plan.lr)
    train(model, optimizer, [0])
    for name in ("unused", "late"):
        assert torch.equal(getattr(model, name), getattr(before, name))
    for slot in optimizer.state().values():
        assert slot.keys().isdisjoint({"unused", "late", "frozen.weight"})
        assert {"first.weight", "scale"} <= slot.keys()


def test_a_state_is_a_copy():
    model, _ = nets()
    optimizer = LocalOptimizer(model, LocalConfig(optimizer="adam"), 0.1)
    train(model, optimizer, [0])
    state = optimizer.state()
    before = state["exp_avg"]["scale"].clone()
    train(model, optimizer, [1])
    assert state["step"]["scale"] == 1
    assert torch.equal(state["exp_avg"]["scale"], before)


def test_an_optimizer_without_momentum_has_nothing_to_keep():
    model, _ = nets()
    optimizer = LocalOptimizer(model, LocalConfig(momentum=0.0), 0.1)
    train(model, optimizer, [0])
    assert optimizer.state() == {}


@pytest.mark.parametrize("name", few(["sgd", "adam"], 1))
def test_an_optimizer_loads_no_compiler(name):
    code = f"""
import sys, torch
from fedbb.training.config import LocalConfig
from fedbb.training.loop import LocalOptimizer
model = torch.nn.Linear(2, 1)
model(torch.ones(3, 2)).sum().backward()
LocalOptimizer(model, LocalConfig(optimizer={name!r}), 0.1).step()
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
