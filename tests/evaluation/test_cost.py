"""Costs are those one can work out by hand, and those the paper prints."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from fedbb.evaluation.cost import (
    MethodCost,
    NetworkCost,
    TailCost,
    cost_of,
    count_macs,
    measure_network,
    method_cost,
)
from fedbb.models.base import NetworkModule, Outputs
from fedbb.models.registry import MODELS, build_model
from fedbb.models.resnet_cifar import resnet11, resnet56
from fedbb.models.small import SmallCNN
from fedbb.paper.tables import PAPER_CLASSES, PAPER_IMAGE, PAPER_MODEL, PAPER_TABLE
from fedbb.penalties.base import Needs
from fedbb.state import snapshot
from reference.macs import count_macs as count_slowly

PLAIN = Needs()
PROXIMAL = Needs(models=1)
CONTRAST = Needs(models=2, forwards=2, projection=True)
ALIGNED = Needs(tail_width=0.25)
FACTS = {
    "fedavg": PLAIN,
    "fedprox": PROXIMAL,
    "moon": CONTRAST,
    "fednova": PLAIN,
    "fedalign": ALIGNED,
    "fedlc": PLAIN,
    "fedbb": PLAIN,
}


@functools.cache
def paper_price(facts: Needs) -> MethodCost:
    return method_cost(facts, PAPER_MODEL, PAPER_CLASSES, PAPER_IMAGE)


@pytest.mark.parametrize("method", PAPER_TABLE)
def test_the_efficiency_table_comes_out_as_printed(method: str) -> None:
    cost, printed = paper_price(FACTS[method]), PAPER_TABLE[method]
    assert round(cost.paper_parameters / 1e6, 2) == printed.parameters
    expected = 87.3 if method == "fednova" else printed.macs
    assert round(cost.paper_macs / 1e6, 1) == expected


def test_the_printed_row_that_cannot_be_derived_says_so() -> None:
    assert PAPER_TABLE["fednova"].macs == 95.24
    assert "95.24" in PAPER_TABLE["fednova"].note


@pytest.mark.parametrize(
    ("facts", "parameters", "macs"),
    [
        (PLAIN, 605_460, 87_254_016),
        (PROXIMAL, 1_210_920, 87_254_016),
        (CONTRAST, 2_211_132, 3 * (87_254_016 + 131_072)),
        (ALIGNED, 605_460, 87_254_016 + 1_867_776),
    ],
)
def test_in_the_papers_convention_the_counts_are_exact(
    facts: Needs, parameters: int, macs: int
) -> None:
    cost = paper_price(facts)
    assert (cost.paper_parameters, cost.paper_macs) == (parameters, macs)


def test_plain_training_costs_three_forward_passes_and_sends_one_state() -> None:
    """4 bytes for each of 614,452 parameters and 8,992 statistics, 8 for each of 58 counters."""
    cost = paper_price(PLAIN)
    assert cost.parameters == 614_452
    assert cost.forward_macs == 87_237_632
    assert cost.training_macs == 3 * 87_237_632
    assert cost.sent_bytes == 4 * (614_452 + 8_992) + 8 * 58
    assert cost.extra_bytes == 0


def test_an_anchor_costs_its_parameters_and_no_multiplications() -> None:
    plain, cost = paper_price(PLAIN), paper_price(PROXIMAL)
    assert cost.parameters == 2 * plain.parameters
    assert cost.extra_bytes == 4 * 614_452
    assert (cost.forward_macs, cost.training_macs) == (plain.forward_macs, plain.training_macs)
    assert cost.sent_bytes == plain.sent_bytes


def test_a_contrast_costs_two_more_forward_passes_without_backward() -> None:
    """With the head of 256·256·2 products a pass is 87,368,704; 3 + 2 of them in training."""
    cost = paper_price(CONTRAST)
    state = 4 * (746_036 + 8_992) + 8 * 58
    assert cost.parameters == 3 * 746_036
    assert cost.forward_macs == 3 * 87_368_704
    assert cost.training_macs == 5 * 87_368_704
    assert (cost.sent_bytes, cost.extra_bytes) == (state, 2 * state)


def test_an_alignment_costs_the_tail_and_both_singular_values() -> None:
    """Tail: first block 131,072 + 147,456 + 65,536 + 131,072, five more of 278,528.

    A value of R×C over P places: R·C·P for the matrix, R·R·C for its square, 10·R·R to iterate.
    """
    tail = 475_136 + 5 * 278_528
    whole = 128 * 256 * 64 + 128 * 128 * 256 + 10 * 128 * 128
    slim = 32 * 64 * 64 + 32 * 32 * 64 + 10 * 32 * 32
    measured = measure_network(resnet56(100), (3, 32, 32), tail_width=0.25)
    assert measured.tail == TailCost(0.25, tail, slim, whole)
    cost = cost_of(ALIGNED, measured)
    assert cost.forward_macs == 87_237_632 + tail + slim + whole
    assert cost.training_macs == 3 * (87_237_632 + tail + slim) + whole
    assert cost.extra_bytes == 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("projection", [False, True])
def test_macs_are_those_that_hooks_count_layer_by_layer(name: str, projection: bool) -> None:
    network = build_model(name, 7, (3, 40, 32), projection=projection)
    measured = measure_network(network, (3, 40, 32))
    assert measured.forward_macs == count_slowly(network, (3, 40, 32))


@pytest.mark.parametrize("name", MODELS)
def test_bytes_are_those_of_the_state_that_is_sent(name: str) -> None:
    network = build_model(name, 7, (1, 16, 16))
    state, measured = snapshot(network), measure_network(network, (1, 16, 16))
    size = [
        sum(t.numel() * t.element_size() for t in part.values())
        for part in (state.params, state.buffers)
    ]
    assert [measured.parameter_bytes, measured.buffer_bytes] == size


@pytest.mark.parametrize("name", MODELS)
def test_every_network_of_the_catalogue_can_be_priced_for_every_method(name: str) -> None:
    # A network without convolutions has no last stage to run on fewer channels.
    aligned = () if name in ("mlp", "linear") else (ALIGNED,)
    for facts in (PLAIN, PROXIMAL, CONTRAST, *aligned):
        cost = method_cost(facts, name, 14, (1, 28, 28))
        assert cost.training_macs > cost.forward_macs > 0


def test_a_network_without_normalization_has_none_to_leave_out() -> None:
    measured = measure_network(SmallCNN(10), (3, 32, 32))
    assert measured == NetworkCost(
        parameters=72_042,
        normalization=0,
        parameter_bytes=4 * 72_042,
        buffer_bytes=0,
        forward_macs=32 * 32 * 432 + 16 * 16 * 4608 + 65_536 + 1280,
        pooling_adds=32 * 16 * 16,
    )


def test_measuring_leaves_the_network_as_it_is() -> None:
    network = resnet11(3).train()
    before = copy.deepcopy(network.state_dict())
    measure_network(network, (3, 16, 16), tail_width=0.5)
    assert network.training
    after = network.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before)


def test_pricing_leaves_the_random_generator_alone() -> None:
    before = torch.get_rng_state()
    method_cost(CONTRAST, "efficientnet-b0", 3, (1, 32, 32))
    assert torch.equal(torch.get_rng_state(), before)


def test_three_forward_passes_is_what_torch_counts_but_for_the_gradient_of_the_image() -> None:
    network, images = resnet11(10), torch.rand(2, 3, 16, 16)
    with FlopCounterMode(display=False) as counter:
        network(images).logits.sum().backward()
    forward = measure_network(network, (3, 16, 16)).forward_macs
    stem = 3 * 16 * 9 * 16 * 16
    assert counter.get_total_flops() // 2 == 2 * (3 * forward - stem)


class Functional(NetworkModule):
    """A user's network that calls functions rather than layers."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.ones(4, 1, 3, 3))
        self.linear = nn.Parameter(torch.ones(2, 4))

    def forward(self, images: torch.Tensor) -> Outputs:
        maps = F.conv2d(images, self.kernel, padding=1)
        embedding = maps.mean(dim=(2, 3))
        return Outputs(F.linear(embedding, self.linear), embedding, (maps,))


def test_functions_are_counted_like_layers() -> None:
    measured = measure_network(Functional(), (1, 5, 5))
    assert measured.forward_macs == 4 * 9 * 25 + 8
    assert measured.pooling_adds == 4 * 25


def test_counting_works_on_any_work_and_returns_its_result() -> None:
    product, macs = count_macs(lambda: torch.ones(2, 3) @ torch.ones(3, 4))
    assert product.tolist() == [[3.0] * 4] * 2
    assert macs == 24
    assert count_macs(lambda: torch.ones(5) + 1)[1] == 0


@pytest.mark.parametrize("measured_width", [None, 0.5])
def test_a_tail_that_was_not_measured_is_refused(measured_width: float | None) -> None:
    measured = measure_network(resnet11(3), (3, 16, 16), measured_width)
    with pytest.raises(ValueError, match=r"not measured with a tail of width 0.25"):
        cost_of(ALIGNED, measured)
