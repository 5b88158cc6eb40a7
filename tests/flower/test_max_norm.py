"""One bound on the norm of an update in simulations, on Flower and in other people's apps."""

import math

import pytest
import torch

pytest.importorskip("flwr", reason="needs the extra fedbb[flower]")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from fedbb.errors import ReplyError
from fedbb.flower.strategy import ClientBalancedStrategy
from fedbb.models.registry import MODELS, build_model
from fedbb.records import ClientInfo, ClientUpdate, ModelState
from fedbb.rng import torch_stream
from fedbb.rounds.label_report import SAMPLES, dispersion_key, split_arrays
from fedbb.rounds.replies import Expected, Reply, check_reply
from fedbb.rounds.round import RoundReplies, ValidUpdates
from fedbb.state import snapshot, state_to_arrays
from fedbb.training.config import LocalConfig
from helpers.flower_grid import OwnGrid, take_identity

CONFIG = LocalConfig(batch_size=5)


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    take_identity(monkeypatch)


def network():
    with torch_stream(0, "model"):
        return build_model("resnet11", 3, (1, 32, 32))


def moved(state, *, params=0.0, buffers=0.0):
    """Return the state with its parameters, or float buffers, moved by this distance in all."""

    def move(part, distance):
        floats = [name for name, tensor in part.items() if tensor.is_floating_point()]
        size = sum(part[name].numel() for name in floats)
        step = distance / math.sqrt(size)
        return {name: tensor + step if name in floats else tensor for name, tensor in part.items()}

    return ModelState(move(state.params, params), move(state.buffers, buffers))


def simulated(current, trained, bound):
    update = ClientUpdate(0, trained, 2, 2.0, 0.5, 0.1)
    return ValidUpdates(bound)(current, RoundReplies((0,), [update])).clients == (0,)


def on_flower(current, trained, bound):
    expected = Expected(current, ClientInfo(0, 10), CONFIG, round=1, max_norm=bound)
    try:
        check_reply(Reply(0, 1, 1, state_to_arrays(trained), 2, 0.5, 0.1), expected)
    except ReplyError:
        return False
    return True


def in_strategy(current, trained, bound):
    """Run a round of another app: arrays go by the names of torch's state dict."""

    def record(state):
        tensors = {**state.params, **state.buffers}
        return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in tensors.items()})

    def reply(message):
        metrics = MetricRecord({"num-examples": 10, SAMPLES: 10, dispersion_key("share-std"): 0.1})
        content = RecordDict({"arrays": record(trained), "metrics": metrics})
        return Message(content, reply_to=message)

    grid = OwnGrid(reply, (1, 2))
    strategy = ClientBalancedStrategy(FedAvg(), max_norm=bound)
    messages = strategy.configure_train(1, record(current), ConfigRecord(), grid)
    arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(messages))
    return arrays is not None


@pytest.mark.parametrize("bound", [0.5, 4.9, 5.1, 20.0])
@pytest.mark.parametrize(
    "change",
    [{"params": 5.0}, {"buffers": 5.0}, {"params": 4.0, "buffers": 4.0}, {}],
    ids=lambda change: "+".join(change) or "nothing",
)
def test_an_update_is_accepted_everywhere_or_nowhere(change, bound):
    current = snapshot(network())
    trained = moved(current, **change)
    verdict = simulated(current, trained, bound)
    assert on_flower(current, trained, bound) == verdict
    assert in_strategy(current, trained, bound) == verdict
    # Parameters and buffers are never added up: 4 and 4 do not make 5.7.
    assert verdict or max(change.values()) > bound
    assert not verdict or change.get("params", 0.0) < bound


@pytest.mark.parametrize("name", sorted(MODELS))
def test_parameters_and_buffers_of_our_networks_are_told_apart_by_name(name):
    state = snapshot(build_model(name, 3, (1, 32, 32), projection=True))
    tensors = {**state.params, **state.buffers}
    found = split_arrays({name: tensor.numpy() for name, tensor in tensors.items()})
    assert found.params.keys() == state.params.keys()
    floats = {name for name, tensor in state.buffers.items() if tensor.is_floating_point()}
    assert found.buffers.keys() == floats
    assert all(tensor.dtype is torch.float64 for tensor in found.params.values())
