"""The tail of a network is its last stage, whole or on the leading channels."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedbb.errors import RecipeError
from fedbb.models.base import NetworkModule
from fedbb.models.blocks import leading, slim_channels
from fedbb.models.registry import build_model
from fedbb.models.resnet_cifar import Bottleneck, ResNet, resnet11, resnet56
from fedbb.models.small_cnn import SmallCNN
from fedbb.rng import torch_stream
from reference.narrow import narrowed

# The modules that the last stage is made of, by the beginning of their names.
LAST_STAGE = {
    "resnet56": ("layer3.",),
    "resnet11": ("layer3.",),
    "small-cnn": ("conv2.",),
    "efficientnet-b0": ("stages.6.", "top."),
    "lenet": ("conv2.",),
}


def seeded(name: str) -> NetworkModule:
    with torch_stream(0, "test"):
        return build_model(name, 3, (1, 16, 16))


def images(batch: int = 3, side: int = 16) -> Tensor:
    with torch_stream(1, "test"):
        return torch.rand(batch, 1, side, side)


@pytest.mark.parametrize("name", LAST_STAGE)
def test_a_network_tells_how_many_stages_it_returns(name: str) -> None:
    network = seeded(name)
    assert len(network(images()).stages) >= 2


@pytest.mark.parametrize("name", LAST_STAGE)
@pytest.mark.parametrize("training", [True, False])
def test_at_width_one_the_tail_is_the_last_stage_of_the_forward_pass(
    name: str, training: bool
) -> None:
    network, again = seeded(name).train(training), seeded(name).train(training)
    stages = network(images()).stages
    assert torch.equal(again.tail(stages[-2], 1), stages[-1])


@pytest.mark.parametrize("name", LAST_STAGE)
@pytest.mark.parametrize("width", [0.25, 0.5])
@pytest.mark.parametrize("training", [True, False])
def test_a_narrow_tail_gives_the_leading_channels_and_leaves_all_buffers_alone(
    name: str, width: float, training: bool
) -> None:
    network = seeded(name).train(training)
    stages = network(images()).stages
    before = {key: buffer.clone() for key, buffer in network.named_buffers()}
    last = network.tail(leading(stages[-2], width), width)
    batch, channels, *sides = stages[-1].shape
    assert last.shape == (batch, slim_channels(channels, width), *sides)
    assert all(torch.equal(buffer, before[key]) for key, buffer in network.named_buffers())


def test_the_tail_of_resnet56_has_the_shapes_of_fedalign() -> None:
    network = resnet56(10)
    hidden = leading(network(torch.rand(2, 3, 32, 32)).stages[-2], 0.25)
    assert hidden.shape == (2, 32, 16, 16)
    assert network.tail(hidden, 0.25).shape == (2, 64, 8, 8)


@pytest.mark.parametrize("name", LAST_STAGE)
def test_only_leading_channels_of_the_last_stage_get_the_gradient_of_a_narrow_tail(
    name: str,
) -> None:
    network = seeded(name)
    hidden = leading(network(images()).stages[-2], 0.25).detach()
    with torch_stream(2, "test"):
        last = network.tail(hidden, 0.25)
        (last * torch.randn_like(last)).sum().backward()
    for key, parameter in network.named_parameters():
        if not key.startswith(LAST_STAGE[name]):
            assert parameter.grad is None, key
            continue
        outputs = slim_channels(len(parameter), 0.25)
        assert parameter.grad[:outputs].any(), key
        assert not parameter.grad[outputs:].any(), key
        if parameter.ndim == 4 and parameter.shape[1] > 1:
            inputs = slim_channels(parameter.shape[1], 0.25)
            assert parameter.grad[:outputs, :inputs].any(), key
            assert not parameter.grad[:, inputs:].any(), key


def narrow_bottleneck(block: Bottleneck, inputs: int, maps: Tensor) -> Tensor:
    """Run a block at a quarter by layers built for 16 and 64 channels."""
    inner = F.relu(narrowed(block.bn1, 16, 16)(narrowed(block.conv1, inputs, 16)(maps)))
    inner = F.relu(narrowed(block.bn2, 16, 16)(narrowed(block.conv2, 16, 16)(inner)))
    inner = narrowed(block.bn3, 64, 64)(narrowed(block.conv3, 16, 64)(inner))
    if isinstance(block.downsample, nn.Sequential):
        convolution, normalization = block.downsample
        maps = narrowed(normalization, 64, 64)(narrowed(convolution, inputs, 64)(maps))
    return F.relu(inner + maps)


def test_the_tail_of_a_resnet_is_that_of_narrow_layers_with_copied_weights() -> None:
    with torch_stream(3, "test"):
        network = ResNet((1, 1, 2), classes=3).double()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.uniform_(module.bias, -0.5, 0.5)
        hidden = torch.randn(2, 32, 6, 6, dtype=torch.float64)
    expected = narrow_bottleneck(network.layer3[0], 32, hidden)
    expected = narrow_bottleneck(network.layer3[1], 64, expected)
    torch.testing.assert_close(network.tail(hidden, 0.25), expected)


def test_the_tail_of_the_small_network_is_a_narrow_convolution_with_copied_weights() -> None:
    with torch_stream(4, "test"):
        network = SmallCNN(3)
        hidden = torch.randn(2, 8, 5, 5)
    expected = F.relu(narrowed(network.conv2, 8, 8)(hidden))
    torch.testing.assert_close(network.tail(hidden, 0.25), expected)


def test_a_tail_of_one_image_of_one_pixel_stays_finite() -> None:
    network = resnet11(3)
    assert torch.isfinite(network.tail(torch.rand(1, 32, 1, 1), 0.25)).all()


def test_a_network_without_a_tail_says_so() -> None:
    with pytest.raises(RecipeError, match=r"needs a network .*`tail`.*NetworkModule is none"):
        NetworkModule().tail(torch.rand(1, 8, 1, 1), 0.25)
