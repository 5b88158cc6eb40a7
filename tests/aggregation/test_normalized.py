import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation.merging import average, normalized_average
from fedbb.records import ClientUpdate, ModelState
from fedbb.state import digest
from reference.fednova import merge as slow_merge


def state(value, variance=1.0, count=3):
    params = {"weight": torch.tensor([value], dtype=torch.float64)}
    buffers = {"variance": torch.tensor([variance]), "count": torch.tensor(count)}
    return ModelState(params, buffers)


def update(client, value, mass, **buffers):
    return ClientUpdate(client, state(value, **buffers), 1, mass, 0.0)


clients = st.lists(
    st.tuples(st.floats(-5, 5), st.floats(0.1, 500), st.floats(0.01, 1)), min_size=1, max_size=6
)


@given(st.floats(-5, 5), clients)
def test_the_merge_equals_the_papers_update(current, drawn):
    values, masses, sizes = (np.array(column) for column in zip(*drawn, strict=True))
    weights = sizes / sizes.sum()
    updates = [update(k, v, m) for k, (v, m) in enumerate(zip(values, masses, strict=True))]
    merged = normalized_average(state(current), updates, weights)
    expected = slow_merge(current, values, weights, masses)
    assert merged.params["weight"].item() == pytest.approx(expected, rel=1e-9, abs=1e-7)


@given(clients, st.floats(0.5, 500))
def test_equal_steps_give_fedavg_to_the_bit(drawn, mass):
    sizes = np.array([size for *_, size in drawn])
    updates = [update(k, value, mass) for k, (value, _, _) in enumerate(drawn)]
    ours, plain = (
        merge(state(1.0), updates, sizes / sizes.sum()) for merge in (normalized_average, average)
    )
    assert digest(ours) == digest(plain)


def test_a_running_variance_is_averaged_and_never_negative():
    # By FedNova's rule Σc = 0.5 + 0.5·(a mean of 50.5)/1 … > 1 would carry 1 → 0.05 below zero.
    updates = [update(0, 0.0, 1.0, variance=0.05), update(1, 0.0, 100.0, variance=0.05)]
    merged = normalized_average(state(0.0), updates, np.array([0.5, 0.5]))
    assert merged.buffers["variance"].item() == pytest.approx(0.05)
    assert merged.buffers["count"].dtype == torch.int64


def test_the_current_state_of_a_float64_model_is_left_as_it_was():
    current = state(1.0)
    before = digest(current)
    merged = normalized_average(
        current, [update(0, 2.0, 1.0), update(1, 3.0, 4.0)], np.array([0.5, 0.5])
    )
    assert merged.params["weight"].item() != 1.0
    assert digest(current) == before
