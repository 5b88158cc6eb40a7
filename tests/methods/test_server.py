"""Methods whose server does more than average: their laws in whole rounds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb.aggregation.robust import Uniform
from fedbb.errors import RecipeError
from fedbb.methods import Method, build_method, fedadam, fedavg, fedavgm, feddyn, moon, scaffold
from fedbb.records import ModelState
from fedbb.rounds.loop import Schedule, Start
from fedbb.state import digest, select
from fedbb.training.config import LocalConfig
from helpers import toy
from helpers.toy import toy_network, toy_rounds, toy_shares

ALIKE = replace(fedavg(), weighting=Uniform())
PLAIN = LocalConfig(batch_size=8, lr=0.1, momentum=0.0, weight_decay=0.0)


def close(one: ModelState, two: ModelState, bound: float) -> None:
    for name, tensor in two.params.items():
        torch.testing.assert_close(one.params[name], tensor, rtol=bound, atol=bound)


def test_fedavgm_without_momentum_at_rate_one_is_fedavg_to_the_bit():
    ours, theirs = (list(toy_rounds(method))[-1] for method in (fedavgm(momentum=0.0), fedavg()))
    assert digest(ours.state) == digest(theirs.state)


@pytest.mark.parametrize("plan", [PLAIN, None])
def test_the_first_round_of_scaffold_is_fedavg_with_equal_weights_to_the_bit(plan):
    ours, theirs = (next(toy_rounds(method, plan=plan)) for method in (scaffold(), ALIKE))
    assert digest(ours.state) == digest(theirs.state)


def test_later_rounds_of_scaffold_differ():
    ours, theirs = (list(toy_rounds(method))[-1] for method in (scaffold(), ALIKE))
    assert digest(ours.state) != digest(theirs.state)


def test_scaffold_with_one_client_is_fedavg(monkeypatch):
    monkeypatch.setattr(toy, "toy_shares", lambda dataset: toy_shares(dataset, clients=1))
    ours, theirs = (list(toy_rounds(method)) for method in (scaffold(), fedavg()))
    close(ours[-1].state, theirs[-1].state, 1e-4)


def test_with_all_clients_scaffolds_server_has_the_mean_of_their_control_variates(monkeypatch):
    engines = []
    make = toy.Inline
    monkeypatch.setattr(toy, "Inline", lambda *parts: engines.append(make(*parts)) or engines[-1])
    last = list(toy_rounds(scaffold()))[-1]
    states = [engines[0].store.load(client, 3).tensors for client in range(3)]
    for name, control in select(last.result.server, "scaffold.").items():
        mean = sum(tensors[f"scaffold.{name}"].double() for tensors in states) / 3
        torch.testing.assert_close(control.double(), mean, rtol=1e-4, atol=1e-6)


def test_a_client_that_stays_away_keeps_its_control_variate_and_the_sum_is_over_all_clients():
    schedule = Schedule(number=1, participation=0.34)  # one of three
    (only,) = toy_rounds(scaffold(), plan=PLAIN, schedule=schedule)
    (report,) = only.reports
    start = toy_network().state_dict()
    for name, control in select(only.result.server, "scaffold.").items():
        # c = (θ − θ_k) / (η·a) / 3, and θ_k is the new model.
        mean = (start[name] - only.state.params[name]).double() / (0.1 * report.steps)
        torch.testing.assert_close(control.double(), mean / 3, rtol=1e-4, atol=1e-6)


def test_the_rate_of_scaffolds_server_scales_the_change():
    half, whole = (next(toy_rounds(scaffold(lr=lr), plan=PLAIN)) for lr in (0.5, 1.0))
    start = toy_network().state_dict()
    for name, tensor in half.state.params.items():
        middle = (start[name].double() + whole.state.params[name].double()) / 2
        torch.testing.assert_close(tensor.double(), middle, rtol=1e-6, atol=1e-7)


def test_feddyns_server_shifts_the_mean_by_what_it_keeps():
    alpha = 0.1
    (only,) = toy_rounds(feddyn(alpha=alpha), schedule=Schedule(number=1))
    start = toy_network().state_dict()
    for name, kept in select(only.result.server, "feddyn.").items():
        # h = −α·(mean − θ), and θ' = mean − h/α: with all clients θ' − θ is twice mean − θ.
        moved = only.state.params[name].double() - start[name].double()
        torch.testing.assert_close(kept.double(), -alpha * moved / 2, rtol=1e-4, atol=1e-7)


def test_going_on_from_a_round_gives_the_same_bits_only_with_the_server_state():
    method = fedadam(lr=0.01)
    whole = list(toy_rounds(method))
    start = Start(whole[0].state, 1, server=whole[0].result.server)
    rest = list(toy_rounds(method, start=start))
    assert digest(rest[-1].state) == digest(whole[-1].state)
    forgetful = list(toy_rounds(method, start=Start(whole[0].state, 1)))
    assert digest(forgetful[-1].state) != digest(whole[-1].state)


def test_scaffold_refuses_adam_by_name():
    with pytest.raises(RecipeError, match=r'SCAFFOLD needs local\.optimizer = "sgd"'):
        next(toy_rounds(scaffold(), plan=LocalConfig(optimizer="adam", lr=0.01)))


# Parameters, first four and last three, and their norm after five rounds of three full-batch steps
# by the public code of FedDyn's authors (alpemreacar/FedDyn, train_FedDyn and train_SCAFFOLD).
OF_THE_AUTHORS = {
    "feddyn": (
        [0.6045980, 0.1332656, 0.3397788, -0.3190302, -0.2372836, 0.6592838, -0.3994383],
        3.6241263,
    ),
    "scaffold": (
        [0.2701855, 0.1424712, 0.3462951, -0.1252203, 0.2547493, 0.3166177, -0.5488052],
        3.1336286,
    ),
}


@pytest.mark.parametrize(("name", "options"), [("feddyn", {"alpha": 0.05}), ("scaffold", {})])
def test_five_rounds_are_those_of_the_authors_code(name, options):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(48, 6)).astype("float32")
    labels = (inputs @ rng.normal(size=(6, 3)) + rng.normal(size=(48, 3))).argmax(axis=1)
    order = np.argsort(labels, kind="stable")  # four clients of twelve, each with a class or two
    first = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    for parameter in first.parameters():
        parameter.data.copy_(torch.from_numpy(rng.normal(scale=0.4, size=parameter.shape)))
    arrays = (inputs[order], labels[order])
    data = fedbb.data.Dataset.from_arrays(*arrays, *arrays)
    clients = fedbb.partition.from_owners(data, np.repeat(np.arange(4), 12))
    local = LocalConfig(epochs=3, batch_size=12, lr=0.1, momentum=0.0, weight_decay=0.0)
    method = build_method(name, options)
    run = fedbb.simulate(data, clients, model=first, method=method, local=local, rounds=5)
    found = torch.cat([p.detach().flatten() for p in run.model.parameters()])
    numbers, norm = OF_THE_AUTHORS[name]
    assert [*found[:4].tolist(), *found[-3:].tolist()] == pytest.approx(numbers, abs=2e-6)
    assert found.double().norm().item() == pytest.approx(norm, abs=2e-6)


def test_harmonizing_keeps_server_steps_and_the_weighting_of_a_plain_balancing_method():
    both = build_method("scaffold+fedlc", {})
    assert both.weighting == Uniform()
    assert both.server == scaffold().server
    assert both.statistics == scaffold().statistics
    assert build_method("scaffold+fedbb", {}).weighting == fedbb.methods.fedbb().weighting
    assert build_method("fedadam+fedbb", {}).server == fedadam().server


def test_equal_server_steps_are_taken_once_and_different_ones_of_a_name_are_refused():
    again = Method("again", server=fedadam().server)
    assert fedbb.methods.harmonize(fedadam(), again).server == fedadam().server
    other = Method("other", server=fedadam(lr=0.5).server)
    with pytest.raises(
        RecipeError, match=r"FedAdam\+other: AdaptiveOptimizer and AdaptiveOptimizer are both named"
    ):
        fedbb.methods.harmonize(fedadam(), other)


def test_a_second_method_whose_parts_would_be_lost_is_refused():
    with pytest.raises(RecipeError, match=r"FedAvg\+MOON would lose the penalties of MOON"):
        fedbb.methods.harmonize(fedavg(), moon())
    with pytest.raises(RecipeError, match=r"would lose the merge of FedNova"):
        fedbb.methods.harmonize(fedavg(), fedbb.methods.fednova())
