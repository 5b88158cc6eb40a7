"""RHFL: weights of clients by the drop of their loss, and a client's share of the mean."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.aggregation.server_step import Turn
from fedbb.methods import rhfl
from fedbb.methods.rhfl import ClientConfidence, PeerDistillation, confidence_weights
from fedbb.records import ModelState, RunFacts, Task

FACTS = RunFacts(Task.MULTICLASS, 2, None, clients=3, seed=0, public=2)
MODEL = ModelState({}, {})


def test_weights_have_the_values_worked_out_by_hand():
    weights = confidence_weights(np.array([2, 1.5, 1.2, 1]), np.array([1.6, 1.4, 0.9, 1.1]), 0.5)
    assert weights.tolist() == pytest.approx(
        [0.2673601, 0.23718909, 0.28272495, 0.21272586], abs=1e-8
    )


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50)), min_size=1, max_size=6),
    st.floats(0, 5),
)
def test_weights_are_a_distribution_and_rise_with_the_drop(losses, strength):
    before, now = np.array(losses).T
    weights = confidence_weights(before, now, strength)
    assert weights.sum() == pytest.approx(1)
    assert np.all(weights > 0)
    even = confidence_weights(before, now, 0.0)
    assert even.tolist() == pytest.approx([1 / len(now)] * len(now))
    first = confidence_weights(np.full(len(now), np.nan), now, strength)
    assert first.tolist() == pytest.approx(even.tolist())


def turn(number, tables, losses):
    each = {
        "public-table.table": {k: torch.tensor(t) for k, t in tables.items()},
        "private-loss.loss": {k: torch.tensor(v, dtype=torch.float64) for k, v in losses.items()},
    }
    return Turn(number, MODEL, MODEL, tuple(tables), FACTS, each=each)


ONE = [[0.9, 0.1], [0.6, 0.4]]
TWO = [[0.5, 0.5], [0.0, 1.0]]


def test_a_client_learns_the_mean_of_the_others_and_its_own_part_is_taken_out():
    step, spec = ClientConfidence(0.5), rhfl().distillation
    assert isinstance(spec, PeerDistillation)
    state = step.begin(MODEL, FACTS, None)
    assert spec.target(_sent(step, state), {}, 0) is None  # nobody sent a table yet
    state, _ = step.step(state, turn(1, {0: ONE, 2: TWO}, {0: 1.0, 2: 2.0}))
    sent = _sent(step, state)
    assert sent["consensus.weights"].tolist() == pytest.approx([0.5, 0, 0.5])
    own = {"table": torch.tensor(ONE)}
    assert torch.allclose(spec.target(sent, own, 0), torch.tensor(TWO), atol=1e-6)
    # A client without a table learns the mean of all.
    mean = (torch.tensor(ONE) + torch.tensor(TWO)) / 2
    assert torch.allclose(spec.target(sent, {}, 1), mean, atol=1e-6)
    # Client 2 stays away: its table and its quality stay as they were.
    state, _ = step.step(state, turn(2, {0: TWO, 1: ONE}, {0: 0.5, 1: 3.0}))
    assert state["before"].tolist() == [1.0, -1.0, -1.0]
    assert state["now"].tolist() == [0.5, 3.0, 2.0]
    weights = state["weights"].tolist()
    assert weights == pytest.approx(
        confidence_weights(np.array([1, np.nan, np.nan]), np.array([0.5, 3, 2]), 0.5).tolist()
    )
    assert weights[0] > weights[1] == pytest.approx(weights[2])


def test_a_client_alone_has_nobody_to_learn_from():
    step, spec = ClientConfidence(0.5), rhfl().distillation
    state, _ = step.step(step.begin(MODEL, FACTS, None), turn(1, {1: ONE}, {1: 1.0}))
    assert spec.target(_sent(step, state), {"table": torch.tensor(ONE)}, 1) is None


def _sent(step, state):
    return {f"consensus.{name}": tensor for name, tensor in step.broadcast(state, 1).items()}


@pytest.mark.parametrize(
    "options", [{"confidence": "high"}, {"strength": -1.0}, {"warm_rounds": -1}, {"alpha": -1.0}]
)
def test_a_bad_value_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        rhfl(**options)
