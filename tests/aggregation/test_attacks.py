"""Two liars among nine clients: what they do to the plain mean, and not to the robust rules."""

from functools import cache

import pytest
from torch import nn

from fedbb.errors import DivergedError
from fedbb.evaluation.metrics import Scorer
from fedbb.models.base import NetworkModule, Outputs
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.records import ModelState
from fedbb.rng import torch_stream
from fedbb.rounds.loop import Schedule, Start, run_rounds
from fedbb.rounds.round import PlainRound, train_all
from fedbb.runs.federation import prepare
from fedbb.runs.runtime import local_config_of
from fedbb.simulation.inline import Inline
from fedbb.state import snapshot
from helpers.attackers import Infiltrated, add_noise, flip_labels, move_by
from helpers.cover import cover

CLIENTS, LIARS, ROUNDS = 9, frozenset({1, 6}), 5
CHANCE = 0.1
LOSS = {"clip": 0.35, "median": 0.1, "trimmed-mean": 0.1, "krum": 0.12, "multi-krum": 0.05}
"""How much balanced accuracy a robust rule may lose to any of these attacks."""

ATTACKS = {
    "sign flip": move_by(-10.0),
    "scaling": move_by(100.0),
    "noise": add_noise(3.0),
    "false labels": None,
}
DEFENSES = {
    "clip": {"rule": "clip", "max_norm": 0.5},
    **{
        rule: {"rule": rule, "byzantine": len(LIARS)}
        for rule in ("median", "trimmed-mean", "krum", "multi-krum")
    },
}


class Digits(NetworkModule):
    """A linear layer on the pixels, with batch norm before it: buffers that can be attacked."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.fc = nn.Linear(64, 10)

    def forward(self, images):
        flat = self.norm(images).flatten(1)
        return Outputs(self.fc(flat), flat, ())


def recipe(defense):
    partition = {"kind": "label-skew", "clients": CLIENTS, "concentration": 10.0}
    return make_recipe(
        {
            "data": {"name": "digits", "train_images": 540, "partition": partition},
            "method": {"name": "fedbb"},
            "local": {"lr": 0.01, "batch_size": 10, "channels_last": False},
            "defense": defense,
        }
    )


@cache
def federation():
    return prepare(recipe({}))


def attacked(attack, defense, rounds=ROUNDS):
    """Return the rounds of a small federation under an attack, named or given; None is none."""
    whole = recipe(defense)
    method, plan = check_recipe(whole), local_config_of(whole)
    with torch_stream(0, "digits"):
        model = Digits()
    start, shares = Start(snapshot(model)), federation().clients
    infos = Inline(model, shares, method, plan).client_infos()
    if attack == "false labels":
        shares = flip_labels(shares, LIARS)
    engine = Inline(model, shares, method, plan)
    spoil = ATTACKS.get(attack, attack)
    ask = train_all(engine if spoil is None else Infiltrated(engine, LIARS, spoil))
    join = PlainRound(ask, method, infos, 0, whole.defense)
    scorer = Scorer(model, federation().dataset, federation().scored)
    return list(run_rounds(join, start, Schedule(rounds), scorer))


@cache
def score(attack, rule):
    try:
        last = attacked(attack, DEFENSES.get(rule, {}))[-1]
    except DivergedError:
        return CHANCE
    return last.scores["test"].macro["balanced_accuracy"]


def test_unattacked_the_federation_learns():
    assert score(None, None) > 0.85


@pytest.mark.parametrize("attack", ["sign flip", "scaling", "noise"])
def test_the_plain_mean_fails(attack):
    assert score(attack, None) < score(None, None) - 0.5


@pytest.mark.parametrize(("rule", "attack"), cover(DEFENSES, list(ATTACKS)))
def test_a_robust_rule_loses_no_more_than_stated(attack, rule):
    assert score(attack, rule) > score(None, None) - LOSS[rule]


def test_multi_krum_leaves_out_the_liars_by_name():
    for finished in attacked("noise", DEFENSES["multi-krum"], rounds=2):
        assert {failure.client for failure in finished.result.failures} == LIARS
        assert sum(report.weight for report in finished.reports) == pytest.approx(1.0)


@pytest.mark.parametrize("rule", [*DEFENSES])
def test_a_negative_variance_is_left_out_before_anybody_is_compared(rule):
    def sink(job, trained):
        variance = {"norm.running_var": -trained.buffers["norm.running_var"]}
        return ModelState(trained.params, {**trained.buffers, **variance})

    (first,) = attacked(sink, DEFENSES[rule], rounds=1)
    told = {failure.client: failure.reason for failure in first.result.failures}
    assert all("negative variance in 'norm.running_var'" in told[liar] for liar in LIARS)
    assert (first.state.buffers["norm.running_var"] > 0).all()
