"""The cost of a method: parameters, multiply-accumulate operations (MACs), bytes sent, memory.

A MAC is one multiplication with its addition, in a convolution, a linear map or a matrix product,
for one image. Adding, normalizing and activating are free. The paper counts in FedAlign's manner,
which leaves out normalization parameters and the alignment's own matrices but adds the last
pooling; what it calls MFLOPs is millions of MACs of a forward pass, not of a training step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fedbb._util.plugins import AllowedCode
from fedbb.methods import Method
from fedbb.models.base import (
    check_tail,
    classifier_name,
    leading,
    norm_names,
    run_network,
    run_tail,
)
from fedbb.models.registry import MODELS, build_model, materialize
from fedbb.penalties.alignment import top_singular_value, transmitting_matrix
from fedbb.penalties.base import Needs
from fedbb.records import LabelCounts, RunFacts, Task
from fedbb.rng import torch_stream
from fedbb.state import snapshot
from fedbb.statistics import statistic_shapes

Result = TypeVar("Result")

# The usual estimate: the backward pass finds gradients of inputs and of weights, a MAC each.
TRAINING = 3

PUBLIC = 1000
"""Public inputs for which tables of outputs are counted."""


@dataclass(frozen=True)
class TailCost:
    """MACs of aligning a tail: its pass, and the singular values of the slim and whole stage."""

    width: float
    macs: int = 0
    slim_value_macs: int = 0
    whole_value_macs: int = 0


@dataclass(frozen=True)
class NetworkCost:
    """What a network holds, `normalization` of its parameters aside, and a forward pass's MACs."""

    parameters: int
    normalization: int
    parameter_bytes: int
    buffer_bytes: int
    forward_macs: int
    pooling_adds: int
    tail: TailCost | None = None


@dataclass(frozen=True)
class MethodCost:
    """What training by a method costs a client; MACs are per image of a training step.

    `sent_bytes` is one state, per client and round and way; `broadcast_bytes` go down beside it and
    `statistics_bytes` up, in a round in which all is due. `compressed_bytes` go up in place of the
    state if the method compresses. `extra_bytes` are the models held beside
    the trained one, without activations. `paper_...` count as the paper does.
    """

    parameters: int
    forward_macs: int
    training_macs: int
    sent_bytes: int
    extra_bytes: int
    paper_parameters: int
    paper_macs: int
    broadcast_bytes: int = 0
    statistics_bytes: int = 0
    compressed_bytes: int | None = None


def method_cost(
    method: Method | Needs,
    model: str,
    classes: int,
    image_shape: tuple[int, int, int],
    *,
    allow_code: AllowedCode = False,
) -> MethodCost:
    """Return the cost of a method with a network by name, for images (channels, height, width).

    Args:
        method: The method. If only the needs of its penalty are given, what it exchanges beside
            models is not counted.
        model: Name of the network.
        classes: Number of classes.
        image_shape: Channels, height and width.
        allow_code: Whether code that `model` names may run.

    Raises:
        RecipeError: The network is unknown, or lacks what the method needs.
    """
    needs = method if isinstance(method, Needs) else method.needs
    # No number depends on the weights; the stream only leaves torch's own generator alone.
    with torch_stream(0, "cost"):
        network = build_model(
            model,
            classes,
            image_shape,
            # Networks that are not built in have no head to add; MOON takes their embedding.
            projection=needs.projection and model in MODELS,
            allow_code=allow_code,
        )
        materialize(network, torch.zeros(1, *image_shape))
    if needs.tail_width is not None:
        check_tail(network, "FedAlign")
    cost = cost_of(needs, measure_network(network, image_shape, needs.tail_width))
    if isinstance(method, Needs):
        return cost
    down, up = _exchanged(method, network, classes)
    cost = replace(cost, broadcast_bytes=down, statistics_bytes=up)
    if method.compression is None:
        return cost
    kept = cost.extra_bytes + (_bytes(network.parameters()) if method.compression.keeps else 0)
    sent = method.compression.sent_bytes(snapshot(network))
    return replace(cost, compressed_bytes=sent, extra_bytes=kept)


def _exchanged(method: Method, network: nn.Module, classes: int) -> tuple[int, int]:
    """Return the bytes that a client gets and sends beside models in a round."""
    facts = RunFacts(
        Task.MULTICLASS,
        classes,
        classifier_name(network),
        clients=1,
        seed=0,
        public=PUBLIC,
        norms=norm_names(network),
    )
    first = snapshot(network)
    even = LabelCounts(np.ones(classes), np.full(classes, classes - 1.0), classes)
    down: list[Tensor] = []
    for step in method.server:
        state = step.begin(first, facts, step.measure(even))
        down.extend(step.broadcast(state, 1).values())
    return _bytes(down), _bytes(statistic_shapes(method.statistics, first, facts).values())


def cost_of(needs: Needs, network: NetworkCost) -> MethodCost:
    """Return the cost of a method with a network that was measured as the method uses it."""
    tail = _tail_for(needs, network)
    trained, frozen = network.forward_macs, needs.forwards * network.forward_macs
    aligned = tail.macs + tail.slim_value_macs
    run_models = min(needs.models, needs.forwards)
    pooled = network.forward_macs + network.pooling_adds
    return MethodCost(
        parameters=(1 + needs.models) * network.parameters,
        forward_macs=trained + frozen + aligned + tail.whole_value_macs,
        training_macs=TRAINING * (trained + aligned) + frozen + tail.whole_value_macs,
        sent_bytes=network.parameter_bytes + network.buffer_bytes,
        # A model that only anchors needs no buffers; one that runs does.
        extra_bytes=needs.models * network.parameter_bytes + run_models * network.buffer_bytes,
        paper_parameters=(1 + needs.models) * (network.parameters - network.normalization),
        paper_macs=(1 + needs.forwards) * pooled + tail.macs,
    )


def _tail_for(needs: Needs, network: NetworkCost) -> TailCost:
    if needs.tail_width is None:
        return TailCost(width=0)
    if network.tail is None or network.tail.width != needs.tail_width:
        raise ValueError(f"the network was not measured with a tail of width {needs.tail_width}")
    return network.tail


def measure_network(
    network: nn.Module, image_shape: tuple[int, int, int], tail_width: float | None = None
) -> NetworkCost:
    """Count what a network holds, and what it does for one image of (channels, height, width).

    A copy runs once in evaluation, so the network stays as it is.
    """
    probe = copy.deepcopy(network).cpu().eval()
    outputs, forward_macs = count_macs(lambda: run_network(probe, torch.zeros(1, *image_shape)))
    stages = outputs.stages
    parameter_bytes = _bytes(network.parameters())
    return NetworkCost(
        parameters=_count(network.parameters()),
        normalization=_count(_normalization(network)),
        parameter_bytes=parameter_bytes,
        buffer_bytes=_bytes(network.state_dict().values()) - parameter_bytes,
        forward_macs=forward_macs,
        pooling_adds=stages[-1].numel() if stages else 0,
        tail=None if tail_width is None else _measure_tail(probe, stages, tail_width),
    )


def _measure_tail(probe: nn.Module, stages: tuple[Tensor, ...], width: float) -> TailCost:
    hidden = leading(stages[-2], width)
    slim, macs = count_macs(lambda: run_tail(probe, hidden, width))
    return TailCost(width, macs, _value_macs(hidden, slim), _value_macs(stages[-2], stages[-1]))


def _value_macs(before: Tensor, after: Tensor) -> int:
    return count_macs(lambda: top_singular_value(transmitting_matrix(before, after)))[1]


def count_macs(work: Callable[[], Result]) -> tuple[Result, int]:
    """Do the work, and count the MACs of its convolutions, linear maps and matrix products."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        result = work()
    # torch counts the multiplication and the addition apart.
    return result, int(counter.get_total_flops()) // 2


def _normalization(network: nn.Module) -> list[Tensor]:
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    normalizations = [module for module in network.modules() if isinstance(module, kinds)]
    return [parameter for module in normalizations for parameter in module.parameters()]


def _count(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
