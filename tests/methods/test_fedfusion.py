"""The reconstruction of FedFusion: weights of clients from memberships in components."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

from fedbb.aggregation.server_step import Turn
from fedbb.errors import RecipeError
from fedbb.methods import build_method, fedfusion, with_robust_merge
from fedbb.methods.fedfusion import Components, component_weights
from fedbb.models.base import norm_names
from fedbb.records import RunFacts, Task, Visibility
from fedbb.state import mix, replace_entries, snapshot

MEMBERSHIPS = arrays(
    float, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.floats(0.01, 1)
).map(lambda z: z / z.sum(axis=1, keepdims=True))


def test_weights_have_the_values_worked_out_by_hand():
    soft = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
    assert component_weights(soft).tolist() == pytest.approx(
        [0.29166667, 0.30555556, 0.40277778], abs=1e-8
    )
    hard = np.array([[1, 0], [1, 0], [0, 1], [1, 0]], dtype=float)
    assert component_weights(hard).tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 2, 1 / 6])
    assert component_weights(hard, "by-size").tolist() == [0.25] * 4


@given(MEMBERSHIPS)
def test_weights_are_a_distribution_that_follows_the_clients(z):
    weights = component_weights(z)
    assert weights.sum() == pytest.approx(1)
    assert np.all(weights >= 0)
    assert component_weights(z[::-1]).tolist() == pytest.approx(weights[::-1].tolist())
    assert component_weights(z[:, :1] * 0 + 1).tolist() == pytest.approx([1 / len(z)] * len(z))
    equal = np.repeat(z[:1], len(z), axis=0)
    assert component_weights(equal).tolist() == pytest.approx([1 / len(z)] * len(z))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3, bias=False))


def turn_of(models, number=1):
    facts = RunFacts(
        Task.MULTICLASS, 3, None, clients=len(models), seed=3, norms=norm_names(network())
    )
    merged = mix(models, [1 / len(models)] * len(models))
    clients = tuple(range(len(models)))
    return Turn(number, models[0], merged, clients, facts, updates=dict(enumerate(models)))


def clients(spread):
    first = snapshot(network())
    return [
        replace_entries(first, {"1.running_mean": first.buffers["1.running_mean"] + spread * k})
        for k in (0.0, 1.0, 1.1)
    ]


def test_models_are_merged_by_weights_that_sum_to_one_and_the_autoencoder_goes_on():
    step, turn = Components(4, 5), turn_of(clients(5.0))
    state = step.begin(turn.before, turn.facts, None)
    after, model = step.step(state, turn)
    again, same = step.step(state, turn)
    assert all(torch.equal(after[name], again[name]) for name in state)
    shares = model.buffers["1.running_mean"] / 5
    assert 0 < float(shares[0]) < 1.1
    assert not torch.equal(after["net.encoder-1.weight"], state["net.encoder-1.weight"])
    assert float(after["step.encoder-1.weight"]) == 5.0
    assert torch.equal(model.params["0.weight"], same.params["0.weight"])
    assert torch.allclose(model.params["0.weight"], turn.before.params["0.weight"])


def test_equal_statistics_give_equal_weights():
    step, turn = Components(4, 3), turn_of(clients(0.0))
    _, model = step.step(step.begin(turn.before, turn.facts, None), turn)
    for name, tensor in model.buffers.items():
        assert torch.allclose(tensor.double(), turn.merged.buffers[name].double())


@pytest.mark.parametrize("options", [{"components": 1}, {"mixing": "by-size"}])
def test_one_component_or_components_by_size_leave_the_plain_mean_to_the_bit(options):
    (step,) = fedfusion(**options).server
    turn = turn_of(clients(5.0))
    assert step.step(step.begin(turn.before, turn.facts, None), turn)[1] is turn.merged


def test_what_it_cannot_be_combined_with_is_refused_by_name():
    assert build_method("fedfusion+bsm", {}).weighting == fedfusion().weighting
    with pytest.raises(RecipeError, match="weighs the models of clients by itself"):
        build_method("fedfusion+fedbb", {})
    with pytest.raises(RecipeError, match="merges them in another way"):
        with_robust_merge(fedfusion(), "median", 1)
    assert fedfusion().server[0].visibility is Visibility.UPDATES


def test_a_network_without_batch_normalization_is_refused():
    with pytest.raises(ValueError, match="batch normalization, and Linear has none"):
        Components().check_network(nn.Linear(2, 3))


@pytest.mark.parametrize(
    "options", [{"components": 0}, {"steps": -1}, {"kl": -1.0}, {"mixing": "none"}]
)
def test_a_bad_value_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        fedfusion(**options)
