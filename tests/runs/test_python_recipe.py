"""The record of a run from Python tells its parts from others, in every process alike."""

import inspect
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb.errors import RecipeError
from fedbb.partition.registry import Rule
from fedbb.runs.federation import Federation
from fedbb.runs.python_recipe import (
    Arguments,
    describe_method,
    describe_model,
    describe_rule,
    fingerprints,
)
from helpers.toy import toy_dataset, toy_network


def network():
    return nn.Linear(16, 3)


def federation(data=None, clients=3, seed=0):
    data = data or toy_dataset()
    partition = fedbb.partition.iid(data, clients=clients, seed=seed)
    return Federation(data, partition, {"test": data.test})


def changed(before, after):
    """Name the fingerprints that differ."""
    return {name for name in before if before[name] != after[name]}


def test_equal_parts_have_equal_fingerprints():
    first, second = (fingerprints(federation(), toy_network()) for _ in range(2))
    assert first == second
    assert all(len(first[name]) == 64 for name in ("data", "partition", "weights"))


def nudge(data, part, field):
    """Return the data with one number of one array changed."""
    examples = getattr(data, part)
    array = getattr(examples, field).copy()
    array.flat[-1] = 1 - array.flat[-1] if field == "labels" else array.flat[-1] + 1e-3
    return replace(data, **{part: replace(examples, **{field: array})})


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("field", ["inputs", "labels"])
def test_one_number_of_the_data_changes_its_fingerprint(part, field):
    data = toy_dataset()
    before = fingerprints(federation(), toy_network())
    other = nudge(data, part, field)
    assert "data" in changed(before, fingerprints(federation(other), toy_network()))


def test_held_out_examples_are_part_of_the_data():
    data = toy_dataset()
    plain = federation(data)
    scored = replace(plain, scored={**plain.scored, "validation": data.test})
    before = fingerprints(plain, toy_network())
    assert changed(before, fingerprints(scored, toy_network())) == {"data"}


def test_other_clients_change_the_fingerprint_of_the_partition_alone():
    before = fingerprints(federation(), toy_network())
    for other in (federation(seed=1), federation(clients=4)):
        assert changed(before, fingerprints(other, toy_network())) == {"partition"}
    turned = federation()
    order = turned.partition.clients[::-1]
    turned = replace(turned, partition=replace(turned.partition, clients=order))
    assert changed(before, fingerprints(turned, toy_network())) == {"partition"}


def test_other_weights_and_buffers_change_the_fingerprint_of_the_weights_alone():
    before = fingerprints(federation(), toy_network())
    assert changed(before, fingerprints(federation(), toy_network(seed=1))) == {"weights"}
    counted = toy_network()
    counted.first[1].running_mean += 0.5
    assert changed(before, fingerprints(federation(), counted)) == {"weights"}
    assert changed(before, fingerprints(federation(), network())) == {"model", "weights"}


class Own(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, logits, targets):
        return self.scale * nn.functional.cross_entropy(logits, targets)


def by_counts(counts):
    return nn.CrossEntropyLoss()


METHODS = [
    fedbb.methods.fedavg(),
    fedbb.methods.fedbb(),
    fedbb.methods.fedbb(mu="unit"),
    fedbb.methods.fedbb(gamma=0.5),
    fedbb.methods.fednova(),
    fedbb.methods.fedprox(mu=0.1),
    fedbb.methods.fedprox(mu=0.2),
    fedbb.Method("mine", loss=nn.CrossEntropyLoss()),
    fedbb.Method("mine", loss=nn.CrossEntropyLoss(label_smoothing=0.1)),
    fedbb.Method("mine", loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))),
    fedbb.Method("mine", loss=Own()),
    fedbb.Method("mine", loss=Own(scale=2.0)),
    fedbb.Method("mine", loss=fedbb.FocalLoss(gamma=1.0)),
    fedbb.Method("mine", loss=fedbb.FocalLoss(gamma=2.0)),
    fedbb.Method("mine", loss=fedbb.PNBLoss([5, 3, 1])),
    fedbb.Method("mine", loss=fedbb.PNBLoss([5, 3, 2])),
    fedbb.Method("mine", loss=by_counts),
    fedbb.Method("mine", loss=fedbb.losses.PNB()),
]


def test_methods_that_differ_are_described_differently():
    told = [describe_method(method) for method in METHODS]
    for place, one in enumerate(told):
        assert [other for other in told if other == one] == [one], METHODS[place]


def test_a_function_is_described_by_its_name_and_never_by_its_address():
    told = describe_method(fedbb.Method("mine", loss=by_counts))
    assert f"{__name__}:by_counts" in str(told)
    assert "0x" not in str([describe_method(method) for method in METHODS])


def test_a_network_is_called_by_its_name_or_by_where_its_code_is():
    assert describe_model("small-cnn") == "small-cnn"
    assert describe_model(network) == f"{__name__}:network"
    assert describe_model(nn.Linear(2, 2)) == "torch.nn.modules.linear:Linear"
    assert "<lambda>" in describe_model(lambda: nn.Linear(2, 2))


def test_a_partition_is_described_by_its_rule_without_the_seed_of_the_run():
    data = toy_dataset()
    skewed = fedbb.partition.dirichlet(data, clients=2, concentration=5.0, seed=3)
    rule = describe_rule(skewed, 3)
    assert (rule.kind, rule.clients, rule.concentration, rule.seed) == ("label-skew", 2, 5.0, None)
    assert describe_rule(skewed, 4).seed == 3
    own = fedbb.partition.from_owners(data, np.arange(len(data.train)) % 2)
    assert describe_rule(own, 0).clients == 2


def test_simulate_and_iter_rounds_take_the_same_arguments():
    first, second = (
        inspect.signature(function).parameters for function in (fedbb.simulate, fedbb.iter_rounds)
    )
    assert dict(first) == {**second, "progress": first["progress"]}
    passed_on = {field.name for field in fields(Arguments)}
    assert passed_on == set(second) - {"out", "resume"}


def run_of(**options):
    data = toy_dataset()
    clients = fedbb.partition.iid(data, clients=3)
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(fedbb.iter_rounds).parameters.items()
    }
    given |= {"data": data, "clients": clients, "model": toy_network, **options}
    names = {field.name for field in fields(Arguments)}
    return Arguments(**{name: given[name] for name in names}).experiment()


def test_the_recipe_of_a_run_holds_its_arguments():
    options = {"rounds": 7, "participation": 0.5, "seed": 2, "metric": "f1", "workers": None}
    recipe = run_of(method="fedbb", local=fedbb.LocalConfig(lr=0.2), **options).recipe
    assert (recipe.rounds.number, recipe.rounds.participation) == (7, 0.5)
    assert (recipe.seed, recipe.engine, recipe.local.lr) == (2, "auto", 0.2)
    assert (recipe.method.name, recipe.evaluation.metric) == ("fedbb", "f1")
    assert recipe.data.partition == Rule("even", clients=3, seed=0)
    assert recipe.python.model == "helpers.toy:ToyNet"
    assert run_of(workers=0).recipe.engine == "inline"


def test_arguments_are_refused_in_the_words_of_a_recipe():
    for options, words in (
        ({"rounds": 0}, r"simulate: rounds\.number"),
        ({"seed": -1}, "simulate: seed"),
        ({"metric": "beauty"}, r"simulate: evaluation\.metric"),
        ({"privacy": "secret"}, "simulate: privacy"),
        ({"classifier": "no.such"}, "no.such"),
    ):
        with pytest.raises(RecipeError, match=words):
            run_of(**options)


def test_the_parts_of_a_run_are_new_each_time_they_are_loaded():
    experiment = run_of(validation=0.25)
    first, second = experiment.load("cpu"), experiment.load("cpu")
    assert first.network is not second.network
    assert set(first.federation.scored) == {"test", "validation"}
    assert len(first.federation.dataset.train) == 45


@pytest.mark.slow
def test_fingerprints_are_the_same_in_another_process():
    program = (
        f"import sys; sys.path.insert(0, 'tests'); from {__name__} import *; "
        "print(*fingerprints(federation(), toy_network()).values()); "
        "print([describe_method(method) for method in METHODS])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        timeout=120,
    )
    prints, methods = answer.stdout.splitlines()
    assert prints.split() == list(fingerprints(federation(), toy_network()).values())
    assert methods == str([describe_method(method) for method in METHODS])
