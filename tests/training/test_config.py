import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from fedbb.errors import RecipeError
from fedbb.methods import build_method
from fedbb.training.config import CentralConfig, LocalConfig, LRSchedule, check_optimizer


def rates(schedule, rounds, full=0.1):
    return [schedule.over(rounds).lr(full, number) for number in range(1, rounds + 1)]


def torchs_own(make, rounds, full=0.1):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=full)
    scheduler = make(optimizer)
    found = []
    for _ in range(rounds):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_golden_rates():
    assert rates(LRSchedule("cosine"), 4) == pytest.approx(
        [0.1, 0.08535533905932738, 0.05, 0.014644660940672622], rel=1e-15
    )
    assert rates(LRSchedule("cosine", warmup=2, final=0.1), 4) == pytest.approx(
        [0.1 / 3, 0.2 / 3, 0.1, 0.055], rel=1e-15
    )
    assert rates(LRSchedule("step", step_size=2, gamma=0.5), 5) == [0.1, 0.1, 0.05, 0.05, 0.025]
    assert rates(LRSchedule("step", milestones=(1, 3), gamma=0.5), 4) == [0.1, 0.05, 0.05, 0.025]
    assert rates(LRSchedule(warmup=1), 3) == [0.05, 0.1, 0.1]


LAWS = {
    "cosine": (
        LRSchedule("cosine", final=0.2),
        lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=12, eta_min=0.02),
    ),
    "cosine after a warm-up": (
        LRSchedule("cosine", warmup=3),
        lambda o: lr_scheduler.SequentialLR(
            o,
            [
                lr_scheduler.LinearLR(o, start_factor=1 / 4, total_iters=3),
                lr_scheduler.CosineAnnealingLR(o, T_max=9),
            ],
            [3],
        ),
    ),
    "warm-up": (
        LRSchedule(warmup=4),
        lambda o: lr_scheduler.LinearLR(o, start_factor=1 / 5, total_iters=4),
    ),
    "step": (
        LRSchedule("step", step_size=5, gamma=0.3),
        lambda o: lr_scheduler.StepLR(o, 5, gamma=0.3),
    ),
    "milestones": (
        LRSchedule("step", milestones=(2, 7)),
        lambda o: lr_scheduler.MultiStepLR(o, [2, 7]),
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter in")
@pytest.mark.parametrize("law", LAWS)
def test_the_rates_are_those_of_torchs_schedulers(law):
    schedule, make = LAWS[law]
    assert rates(schedule, 12) == pytest.approx(torchs_own(make, 12), rel=1e-12)


SCHEDULES = st.builds(
    LRSchedule,
    kind=st.just("cosine"),
    warmup=st.integers(0, 30),
    final=st.floats(0, 1),
    rounds=st.none() | st.integers(1, 30),
)


@given(SCHEDULES, st.integers(1, 30), st.floats(1e-6, 10))
def test_a_cosine_rises_to_the_full_rate_and_falls_towards_the_last(schedule, rounds, full):
    found = rates(schedule, rounds, full)
    rising, falling = found[: schedule.warmup], found[schedule.warmup :]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    assert all(0 <= rate <= full * (1 + 1e-12) for rate in found)
    assert all(rate >= schedule.final * full * (1 - 1e-12) for rate in falling)
    assert falling[:1] in ([], [pytest.approx(full)])


def test_a_cosine_may_end_before_the_run():
    found = rates(LRSchedule("cosine", final=0.5, rounds=2), 4)
    assert found == pytest.approx([0.1, 0.075, 0.05, 0.05])


def test_a_constant_rate_is_the_full_one_to_the_bit():
    local = LocalConfig(lr=0.1 + 1e-17)
    assert local.lr_schedule.is_constant
    assert {local.over(7).lr_in(number) for number in range(1, 8)} == {local.lr}
    assert not LRSchedule(warmup=1).is_constant


def test_a_kind_alone_is_a_schedule_with_its_defaults():
    assert LocalConfig(schedule="cosine") == LocalConfig(schedule=LRSchedule("cosine"))
    assert LocalConfig(schedule="constant") == LocalConfig()


def test_a_cosine_of_unknown_length_asks_for_it():
    with pytest.raises(ValueError, match=r"needs the number of rounds: LocalConfig\.over"):
        LocalConfig(schedule="cosine").lr_in(1)
    local = CentralConfig(lr=0.1, schedule="cosine").over(2)
    assert isinstance(local, CentralConfig)
    assert local.lr_in(2) == pytest.approx(0.1 * (1 + math.cos(math.pi / 2)) / 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "step"}, "needs either step_size or milestones"),
        ({"kind": "step", "step_size": 1, "milestones": (2,)}, "needs either step_size or"),
        ({"kind": "cosine", "gamma": 0.5}, "gamma belongs to the kind 'step', not 'cosine'"),
        ({"final": 0.5}, "final belongs to the kind 'cosine', not 'constant'"),
        ({"kind": "linear"}, "'linear' is unknown; allowed: constant, cosine, step"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LRSchedule(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "adam", "nesterov": True}, 'nesterov has no meaning for optimizer = "adam"'),
        ({"optimizer": "adamw", "momentum": 0.5}, "momentum has no meaning"),
        ({"betas": (0.8, 0.9)}, 'betas has no meaning for optimizer = "sgd"'),
        ({"eps": 1e-3}, "eps has no meaning"),
        ({"optimizer": "Adam"}, "optimizer is 'Adam'; allowed: sgd, adam, adamw"),
        ({"precision": "fp16"}, "precision is 'fp16'; allowed: float32, bf16"),
    ],
)
def test_settings_of_another_optimizer_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LocalConfig(**settings)


@pytest.mark.parametrize("method", ["fednova", "fednova+fedbb"])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_method_that_counts_steps_of_sgd_refuses_adam_by_name(method, name):
    chosen = build_method(method, {})
    with pytest.raises(RecipeError, match=rf'^{chosen.name.replace("+", ".")} needs .*"{name}"'):
        check_optimizer(chosen, LocalConfig(optimizer=name))
    check_optimizer(chosen, LocalConfig())
