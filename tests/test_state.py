"""Model states: copies that share nothing, put back to the bit, and their fingerprints."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedbb.records import ClientState, ModelState
from fedbb.state import (
    Mixture,
    digest,
    find_mismatch,
    flatten_client_state,
    flatten_state,
    is_finite,
    mix,
    restore,
    snapshot,
    state_from_arrays,
    state_to_arrays,
    unflatten_client_state,
    unflatten_state,
)

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


class Odd(nn.Module):
    """A model with a parameter of the given type and every kind of buffer."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.1, -0.0, 3e-5], dtype=dtype))
        self.frozen = nn.Parameter(torch.ones(2, dtype=dtype), requires_grad=False)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("bytes", torch.tensor([200, 7], dtype=torch.uint8))
        self.register_buffer("cache", torch.zeros(1), persistent=False)


def entries(state: ModelState) -> dict[str, Tensor]:
    return {**state.params, **state.buffers}


def test_snapshot_keeps_parameters_apart_from_buffers():
    state = snapshot(Odd())
    assert set(state.params) == {"scale", "frozen", "norm.weight", "norm.bias"}
    running = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert set(state.buffers) == running | {"mask", "bytes"}


def test_a_shared_parameter_is_a_parameter_under_each_of_its_names():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    state = snapshot(model)
    assert set(state.params) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert state.buffers == {}


def test_snapshot_is_a_copy_without_a_graph():
    model = Odd()
    state = snapshot(model)
    before = digest(state)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    assert digest(state) == before != digest(snapshot(model))
    assert not any(tensor.requires_grad for tensor in entries(state).values())
    assert {tensor.device.type for tensor in entries(state).values()} == {"cpu"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_restoring_a_snapshot_gives_the_model_back_to_the_bit(dtype):
    source, target = Odd(dtype), Odd(dtype)
    source.norm.num_batches_tracked += 2**40 + 1
    state = snapshot(source)
    with torch.no_grad():
        target.scale.zero_()
        target.bytes.zero_()
    restore(target, state)
    assert digest(snapshot(target)) == digest(state)
    assert {name: tensor.dtype for name, tensor in target.state_dict().items()} == {
        name: tensor.dtype for name, tensor in source.state_dict().items()
    }


def test_restoring_does_not_tie_the_model_to_the_state():
    model = Odd()
    state = snapshot(model)
    before = digest(state)
    restore(model, state)
    with torch.no_grad():
        model.scale.add_(1)
    assert digest(state) == before


def test_restoring_a_state_of_another_model_is_refused():
    with pytest.raises(RuntimeError, match="Missing key"):
        restore(Odd(), snapshot(nn.Linear(2, 2)))


def test_digest_ignores_the_order_of_entries_and_memory_layout():
    tensor = torch.arange(6.0).reshape(2, 3)
    first = ModelState({"a": tensor, "b": tensor + 1}, {})
    layout = tensor.t().contiguous().t()
    assert not layout.is_contiguous()
    assert digest(ModelState({"b": tensor + 1, "a": layout}, {})) == digest(first)


@pytest.mark.parametrize(
    "changed",
    [
        ModelState({"a": torch.tensor([1.0, 2.0])}, {"n": torch.tensor(6)}),
        ModelState({"a": torch.tensor([1.0, 2.0000002])}, {"n": torch.tensor(5)}),
        ModelState({"b": torch.tensor([1.0, 2.0])}, {"n": torch.tensor(5)}),
        ModelState({"a": torch.tensor([1.0, 2.0]).double()}, {"n": torch.tensor(5)}),
        ModelState({"a": torch.tensor([1.0, 2.0]).view(torch.int32)}, {"n": torch.tensor(5)}),
        ModelState({"a": torch.tensor([[1.0, 2.0]])}, {"n": torch.tensor(5)}),
        ModelState({"a": torch.tensor([1.0, 2.0])}, {"n": torch.tensor([5])}),
        ModelState({"a": torch.tensor([1.0, 2.0])}, {}),
    ],
    ids=["buffer", "value", "name", "type", "type, same bytes", "shape", "0-d", "missing"],
)
def test_digest_changes_with_any_value_name_type_or_shape(changed):
    state = ModelState({"a": torch.tensor([1.0, 2.0])}, {"n": torch.tensor(5)})
    assert digest(changed) != digest(state)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.bool, torch.uint8])
def test_digest_takes_every_type_also_empty(dtype):
    filled = ModelState({}, {"a": torch.ones(3, dtype=dtype)})
    empty = ModelState({}, {"a": torch.ones(0, dtype=dtype)})
    assert digest(filled) != digest(empty)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_single_number_that_is_not_finite_is_found(value, dtype):
    good, bad = torch.zeros(3, dtype=dtype), torch.tensor([0, value, 0], dtype=dtype)
    assert not is_finite(ModelState({"a": bad}, {"b": good}))
    assert not is_finite(ModelState({"a": good}, {"b": bad}))


def test_negative_zero_subnormal_and_integer_entries_are_finite():
    assert is_finite(snapshot(Odd()))
    assert is_finite(ModelState({"a": torch.tensor([-0.0, 1e-45, 3e38])}, {}))


def state_of(tensor: Tensor) -> ModelState:
    return ModelState({"a": tensor}, {"n": torch.tensor([1, 2])})


@pytest.mark.parametrize(
    "other",
    [
        state_of(torch.ones(1)),
        state_of(torch.ones(())),
        state_of(torch.ones(0)),
        state_of(torch.ones(1, 2)),
        state_of(torch.ones(2, dtype=torch.float64)),
        state_of(torch.ones(2, dtype=torch.int64)),
        ModelState({"b": torch.ones(2)}, {"n": torch.tensor([1, 2])}),
        ModelState({"a": torch.ones(2), "b": torch.ones(2)}, {"n": torch.tensor([1, 2])}),
        ModelState({"a": torch.ones(2)}, {}),
        ModelState({"a": torch.ones(2)}, {"n": torch.tensor([1])}),
        ModelState({}, {"n": torch.tensor([1, 2]), "a": torch.ones(2)}),
    ],
)
def test_states_that_do_not_fit_each_other_are_refused_and_never_broadcast(other):
    with pytest.raises(ValueError, match=r"state 3 differs from the first in '[abn]'"):
        mix([state_of(torch.ones(2))] * 2 + [other], np.full(3, 1 / 3))


def test_a_weight_missing_or_to_spare_is_refused():
    for weights in (np.ones(1), np.ones(3)):
        with pytest.raises(ValueError, match=r"shorter|longer"):
            mix([state_of(torch.ones(2))] * 2, weights)


def test_order_of_entries_does_not_matter_to_a_mix():
    first = ModelState({"a": torch.ones(2), "b": torch.zeros(2)}, {})
    second = ModelState({"b": torch.ones(2), "a": torch.zeros(2)}, {})
    mixed = mix([first, second], np.array([0.25, 0.75]))
    assert mixed.params["a"].tolist() == [0.25, 0.25]
    assert mixed.params["b"].tolist() == [0.75, 0.75]


def test_boolean_buffers_are_set_where_any_client_set_them():
    states = [ModelState({}, {"m": torch.tensor(mask)}) for mask in ([True, False], [False, False])]
    assert mix(states, np.full(2, 0.5)).buffers["m"].tolist() == [True, False]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_flat_state_has_prefixes_and_gives_the_state_back(dtype):
    state = snapshot(Odd(dtype))
    flat = flatten_state(state, "model.")
    assert {"model.params.norm.weight", "model.buffers.norm.running_var"} <= flat.keys()
    others = {"momentum.scale": torch.ones(3), "params.scale": torch.ones(3)}
    assert digest(unflatten_state({**flat, **others}, "model.")) == digest(state)


def test_a_parameter_may_be_called_like_a_prefix():
    state = ModelState({"params.buffers.a": torch.ones(1)}, {"params.a": torch.zeros(2)})
    assert digest(unflatten_state(flatten_state(state))) == digest(state)


def test_arrays_share_the_memory_of_the_state_and_give_it_back():
    state = snapshot(Odd())
    arrays = state_to_arrays(state)
    assert digest(state_from_arrays(arrays)) == digest(state)
    arrays["params.scale"][0] = 7
    assert state.params["scale"][0] == 7
    assert state_from_arrays({}) == ModelState({}, {})


@pytest.mark.parametrize("model", [None, ModelState({"a": torch.ones(1)}, {})])
@pytest.mark.parametrize(
    "optimizer",
    [
        {},
        {"momentum": {"a": torch.zeros(1)}},
        {kind: {"a.b": torch.tensor(2.0)} for kind in ("exp_avg", "exp_avg_sq", "step")},
    ],
)
def test_a_flat_client_state_gives_the_state_back(model, optimizer):
    state = ClientState(model, optimizer)
    assert unflatten_client_state(flatten_client_state(state)) == state


def test_a_total_stays_as_it_is_when_more_states_are_added():
    mixture = Mixture()
    mixture.add(state_of(torch.ones(2).double()), 1.0)
    total = mixture.total()
    mixture.add(state_of(torch.ones(2).double()), 1.0)
    assert total.params["a"].tolist() == [1.0, 1.0]
    assert mixture.total().params["a"].tolist() == [2.0, 2.0]


def test_a_mismatch_is_named():
    state = snapshot(Odd())
    assert find_mismatch(state, snapshot(Odd())) is None
    assert find_mismatch(state, snapshot(Odd(torch.float16))) == "frozen"
