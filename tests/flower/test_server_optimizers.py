"""The server optimizers take the steps of Flower's own strategies, which nobody here wrote."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvgM, FedYogi

from fedbb.aggregation.server_optimizers import AdaptiveOptimizer, ServerMomentum
from fedbb.aggregation.server_step import Turn
from fedbb.records import ModelState, RunFacts, Task
from helpers.flower_loopback import take_identity

FACTS = RunFacts(Task.MULTICLASS, 2, None, clients=2, seed=0)
CHANGES = np.random.default_rng(0).normal(scale=0.3, size=(6, 5))
START = np.linspace(-1.0, 1.0, 5)
ADAPTIVE = {"eta": 0.1, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


def reply(values):
    content = {
        "arrays": ArrayRecord({"x": Array(values)}),
        "metrics": MetricRecord({"num-examples": 1}),
    }
    return Message(RecordDict(content), dst_node_id=1, message_type="train")


def flower_steps(strategy):
    """Return x after each round in which the mean of two clients' models moved by a change."""
    x, seen = START, []
    for number, change in enumerate(CHANGES, start=1):
        arrays = ArrayRecord({"x": Array(x)})
        strategy.current_arrays = arrays if isinstance(strategy, FedAvgM) else {"x": x}
        replies = [reply(x + change - 0.5), reply(x + change + 0.5)]
        x = strategy.aggregate_train(number, replies)[0]["x"].numpy()
        seen.append(x)
    return np.array(seen)


def our_steps(optimizer):
    x, seen = torch.from_numpy(START), []
    state = optimizer.begin(ModelState({"x": x}, {}), FACTS, None)
    for number, change in enumerate(CHANGES, start=1):
        merged = ModelState({"x": x + torch.from_numpy(change)}, {})
        turn = Turn(number, ModelState({"x": x}, {}), merged, (0, 1), FACTS)
        state, after = optimizer.step(state, turn)
        x = after.params["x"]
        seen.append(x.numpy())
    return np.array(seen)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (AdaptiveOptimizer("yogi", 0.1, 0.9, 0.99, 1e-3), FedYogi(**ADAPTIVE)),
        (
            AdaptiveOptimizer("adagrad", 0.1, 0.9, tau=1e-3),
            FedAdagrad(eta=0.1, tau=1e-3),
        ),
        (
            ServerMomentum(lr=0.5, momentum=0.9),
            FedAvgM(server_learning_rate=0.5, server_momentum=0.9),
        ),
    ],
)
def test_the_steps_are_those_of_flowers_strategy(ours, theirs):
    if isinstance(theirs, FedAdagrad):
        theirs.beta_1 = 0.9  # Flower has no argument for it
    np.testing.assert_allclose(our_steps(ours), flower_steps(theirs), rtol=1e-10, atol=1e-12)


def test_adam_differs_from_flowers_by_its_correction_of_the_bias_alone():
    # Flower multiplies the rate of a round t by √(1 − β₂^(t+1)) / (1 − β₁^(t+1)).
    theirs = FedAdam(**ADAPTIVE)
    x = torch.from_numpy(START)
    state = AdaptiveOptimizer().begin(ModelState({"x": x}, {}), FACTS, None)
    for number, (change, wanted) in enumerate(zip(CHANGES, flower_steps(theirs), strict=True), 1):
        rate = 0.1 * np.sqrt(1 - 0.99 ** (number + 1)) / (1 - 0.9 ** (number + 1))
        merged = ModelState({"x": x + torch.from_numpy(change)}, {})
        turn = Turn(number, ModelState({"x": x}, {}), merged, (0, 1), FACTS)
        state, after = AdaptiveOptimizer("adam", rate, 0.9, 0.99, 1e-3).step(state, turn)
        x = after.params["x"]
        np.testing.assert_allclose(x.numpy(), wanted, rtol=1e-10, atol=1e-12)
