"""Server optimizers: first steps by hand, the reduction to FedAvg, and torch's own optimizers."""

import math

import pytest
import torch

from fedbb.aggregation.server_optimizers import AdaptiveOptimizer, ServerMomentum
from fedbb.aggregation.server_step import Turn
from fedbb.records import ModelState, RunFacts, Task

FACTS = RunFacts(Task.MULTICLASS, 2, None, clients=4, seed=0)
START = torch.tensor([1.0, -2.0], dtype=torch.float64)


def model(values, count=0.0):
    return ModelState({"x": values}, {"mean": torch.tensor([count])})


def steps_of(optimizer, changes, start=START):
    """Return x after each round in which the clients' merged model moved by these changes."""
    state = optimizer.begin(model(start), FACTS, None)
    x, seen = start, []
    for number, change in enumerate(changes, start=1):
        turn = Turn(number, model(x), model(x + change, number), (0, 1), FACTS)
        state, after = optimizer.step(state, turn)
        x = after.params["x"]
        assert after.buffers["mean"] == number  # as merged
        seen.append(x)
    return seen


def torch_steps(make, changes, start=START):
    """Return x after each step of an optimizer of torch whose gradients are −Δ."""
    x = torch.nn.Parameter(start.clone())
    optimizer = make([x])
    seen = []
    for change in changes:
        x.grad = -change
        optimizer.step()
        seen.append(x.detach().clone())
    return seen


CHANGES = [
    torch.tensor(values, dtype=torch.float64)
    for values in ([0.1, -0.2], [0.05, 0.3], [-0.2, 0.0], [0.01, -0.4])
]


@pytest.mark.parametrize(
    ("rule", "moved"),
    [
        ("adam", (0.090909091, -0.095238095)),
        ("yogi", (0.090909091, -0.095238095)),  # from v = 0 the first step is Adam's
        ("adagrad", (0.009900990, -0.009950249)),
    ],
)
def test_the_first_step_by_hand(rule, moved):
    # m = 0.1·Δ = (0.01, −0.02); √v = 0.1·|Δ| (adam, yogi) or |Δ| (adagrad); 0.1·m / (√v + 0.001)
    (x,) = steps_of(AdaptiveOptimizer(rule), CHANGES[:1])
    assert (x - START).tolist() == pytest.approx(moved, abs=1e-8)


def test_yogi_lowers_v_by_the_sign_of_its_distance_from_the_square():
    # v1 = 0.01·0.1² = 1e-4; then Δ = 0: v2 = v1 − 0 = 1e-4, while Adam's falls to 0.99e-4.
    zero = torch.zeros(2, dtype=torch.float64)
    yogi, adam = (
        steps_of(AdaptiveOptimizer(rule), [CHANGES[0], zero]) for rule in ("yogi", "adam")
    )
    first = 0.9 * 0.01
    assert (yogi[1] - yogi[0])[0].item() == pytest.approx(0.1 * first / (0.01 + 1e-3), rel=1e-12)
    root = math.sqrt(0.99e-4)
    assert (adam[1] - adam[0])[0].item() == pytest.approx(0.1 * first / (root + 1e-3), rel=1e-12)


def test_momentum_of_zero_at_rate_one_is_the_merged_model_itself():
    optimizer = ServerMomentum(lr=1.0, momentum=0.0)
    turn = Turn(1, model(START), model(START + CHANGES[0]), (0, 1), FACTS)
    state = optimizer.begin(turn.before, FACTS, None)
    assert optimizer.step(state, turn)[1] is turn.merged


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            ServerMomentum(lr=0.5, momentum=0.9),
            lambda x: torch.optim.SGD(x, lr=0.5, momentum=0.9),
        ),
        (ServerMomentum(lr=0.5, momentum=0.0), lambda x: torch.optim.SGD(x, lr=0.5)),
        (
            AdaptiveOptimizer("adam", 0.1, beta1=0.0, beta2=0.99, tau=1e-3),
            lambda x: torch.optim.RMSprop(x, lr=0.1, alpha=0.99, eps=1e-3),
        ),
        (
            AdaptiveOptimizer("adagrad", 0.1, beta1=0.0, tau=1e-3),
            lambda x: torch.optim.Adagrad(x, lr=0.1, eps=1e-3),
        ),
    ],
)
def test_the_steps_are_those_of_torch(ours, theirs):
    for one, two in zip(steps_of(ours, CHANGES), torch_steps(theirs, CHANGES), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def test_adam_is_torchs_without_its_correction_of_the_bias():
    lr, beta1, beta2, tau = 0.1, 0.9, 0.99, 1e-3
    x = torch.nn.Parameter(START.clone())
    optimizer = torch.optim.Adam([x], lr=lr, betas=(beta1, beta2))
    ours = steps_of(AdaptiveOptimizer("adam", lr, beta1, beta2, tau), CHANGES)
    for number, (change, after) in enumerate(zip(CHANGES, ours, strict=True), start=1):
        first, second = 1 - beta1**number, math.sqrt(1 - beta2**number)
        # torch divides m by `first` and √v by `second`: this rate and eps take both back.
        optimizer.param_groups[0] |= {"lr": lr * first / second, "eps": tau / second}
        x.grad = -change
        optimizer.step()
        torch.testing.assert_close(after, x.detach(), rtol=1e-12, atol=1e-12)


def test_float32_models_keep_float32_moments():
    state = AdaptiveOptimizer().begin(model(START.float()), FACTS, None)
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    (x,) = steps_of(AdaptiveOptimizer(), [CHANGES[0].float()], START.float())
    assert x.dtype == torch.float32
    assert (x - START).tolist() == pytest.approx((0.090909091, -0.095238095), abs=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ServerMomentum(lr=0.0), "lr must be a finite number above 0, not 0.0"),
        (lambda: ServerMomentum(momentum=1.0), r"momentum must be in \[0, 1\), not 1.0"),
        (lambda: AdaptiveOptimizer(beta2=1.0), r"beta2 must be in \[0, 1\)"),
        (lambda: AdaptiveOptimizer(tau=0.0), "tau must be a finite number above 0"),
        (lambda: AdaptiveOptimizer("adamw"), "rule must be one of adam, yogi, adagrad"),
    ],
)
def test_a_bad_value_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
