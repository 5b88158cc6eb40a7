"""The ResNet family has the paper's size, shapes and start."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedbb.models.base import BatchNorm
from fedbb.models.resnet_cifar import ResNet, resnet11, resnet56
from fedbb.rng import torch_stream
from reference.macs import count_macs
from reference.resnet import resnet_logits


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def modules_of(network: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    return [module for module in network.modules() if isinstance(module, kind)]


@pytest.mark.parametrize(
    ("classes", "expected"), [(10, 591_322), (14, 592_350), (100, 614_452), (200, 640_152)]
)
def test_resnet56_has_the_stated_number_of_parameters(classes: int, expected: int) -> None:
    assert parameters(resnet56(classes)) == expected


def test_one_input_channel_saves_two_thirds_of_the_stem() -> None:
    assert parameters(resnet56(10, channels=1)) == 591_322 - 288


def test_resnet56_has_58_convolutions_without_bias_and_58_normalizations() -> None:
    network = resnet56(10)
    convolutions = modules_of(network, nn.Conv2d)
    assert len(convolutions) == 58
    assert all(convolution.bias is None for convolution in convolutions)
    assert len(modules_of(network, BatchNorm)) == len(modules_of(network, nn.BatchNorm2d)) == 58


def test_normalizations_hold_8992_affine_numbers_8992_statistics_and_58_counters() -> None:
    network = resnet56(10)
    affine = sum(parameters(module) for module in modules_of(network, BatchNorm))
    buffers = list(network.buffers())
    assert affine == 8_992
    assert sum(buffer.numel() for buffer in buffers if buffer.is_floating_point()) == 8_992
    assert [buffer.numel() for buffer in buffers if not buffer.is_floating_point()] == [1] * 58


@pytest.mark.parametrize(
    ("classes", "side", "expected"),
    [(10, 32, 87_214_592), (100, 32, 87_237_632), (200, 64, 4 * (87_214_592 - 2_560) + 51_200)],
)
def test_a_forward_pass_costs_the_stated_multiplications(
    classes: int, side: int, expected: int
) -> None:
    assert count_macs(resnet56(classes), (3, side, side)) == expected


def test_each_layer_costs_what_is_stated_for_it() -> None:
    network = resnet56(10)
    costs = (
        count_macs(network.layer1, (16, 32, 32)),
        count_macs(network.layer2, (64, 32, 32)),
        count_macs(network.layer3, (128, 16, 16)),
    )
    assert [round(cost / 1e6, 2) for cost in costs] == [27.00, 29.88, 29.88]


@pytest.mark.parametrize("side", [8, 16, 28, 32, 64, 150])
def test_outputs_have_the_shapes_of_any_image_size(side: int) -> None:
    outputs = resnet11(5)(torch.rand(2, 3, side, side))
    half, quarter = -(-side // 2), -(-side // 4)
    assert outputs.logits.shape == (2, 5)
    assert outputs.embedding.shape == (2, 256)
    assert [tuple(stage.shape) for stage in outputs.stages] == [
        (2, 64, side, side),
        (2, 128, half, half),
        (2, 256, quarter, quarter),
    ]


def test_logits_come_from_the_embedding_which_is_the_mean_of_the_last_stage() -> None:
    network = resnet11(5).eval()
    outputs = network(torch.rand(3, 3, 8, 8))
    torch.testing.assert_close(outputs.embedding, outputs.stages[-1].mean(3).mean(2))
    torch.testing.assert_close(
        outputs.logits, F.linear(outputs.embedding, network.fc.weight) + network.fc.bias
    )


def test_the_forward_pass_is_that_of_the_slow_reference() -> None:
    with torch_stream(3, "test"):
        network = ResNet((2, 1, 2), classes=4, channels=1).double()
        images = torch.rand(3, 1, 9, 9, dtype=torch.float64)
        for module in modules_of(network, BatchNorm):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                nn.init.uniform_(tensor, 0.5, 1.5)
    expected = resnet_logits(network.state_dict(), images, blocks=(2, 1, 2))
    torch.testing.assert_close(network.eval()(images).logits, expected)


def test_only_the_first_block_of_a_layer_has_a_projection_and_its_stride_is_on_the_3x3() -> None:
    network = ResNet((2, 3, 1), classes=10)
    for layer, blocks, stride in zip(
        (network.layer1, network.layer2, network.layer3), (2, 3, 1), (1, 2, 2), strict=True
    ):
        strides = [[block.conv1.stride, block.conv2.stride, block.conv3.stride] for block in layer]
        assert strides[0] == [(1, 1), (stride, stride), (1, 1)]
        assert strides[1:] == [[(1, 1)] * 3] * (blocks - 1)
        assert [bool(parameters(block.downsample)) for block in layer] == [
            index == 0 for index in range(blocks)
        ]


def test_state_dict_keys_are_those_customary_for_resnets() -> None:
    keys = set(resnet11(10).state_dict())
    assert {"conv1.weight", "bn1.running_mean", "fc.weight", "fc.bias"} < keys
    assert {key.removeprefix("layer2.0.") for key in keys if key.startswith("layer2.0.conv")} == {
        "conv1.weight",
        "conv2.weight",
        "conv3.weight",
    }
    assert {key for key in keys if key.startswith("layer3.0.downsample")} == {
        "layer3.0.downsample.0.weight",
        *(f"layer3.0.downsample.1.{name}" for name in ("weight", "bias")),
        *(f"layer3.0.downsample.1.running_{name}" for name in ("mean", "var")),
        "layer3.0.downsample.1.num_batches_tracked",
    }


def test_convolutions_start_with_the_spread_of_fan_out_and_normalizations_as_identity() -> None:
    with torch_stream(0, "test"):
        network = resnet56(10)
    for convolution in modules_of(network, nn.Conv2d):
        fan_out = convolution.out_channels * convolution.kernel_size[0] ** 2
        expected = (2 / fan_out) ** 0.5
        tolerance = 5 / (2 * convolution.weight.numel()) ** 0.5
        assert convolution.weight.std().item() == pytest.approx(expected, rel=tolerance)
    for normalization in modules_of(network, BatchNorm):
        assert (normalization.momentum, normalization.eps) == (0.1, 1e-5)
        assert torch.all(normalization.weight == 1)
        assert torch.all(normalization.bias == 0)


def test_training_mode_moves_the_statistics_and_evaluation_mode_does_not() -> None:
    images = torch.rand(4, 3, 8, 8)
    network = resnet11(10)
    before = network.bn1.running_mean.clone()
    network.eval()(images)
    assert torch.equal(network.bn1.running_mean, before)
    network.train()(images)
    assert not torch.equal(network.bn1.running_mean, before)
    assert network.bn1.num_batches_tracked == 1


def test_evaluation_scores_an_image_the_same_alone_and_in_a_batch() -> None:
    network = resnet11(10).eval()
    images = torch.rand(4, 3, 8, 8)
    together = network(images).logits
    alone = torch.cat([network(image[None]).logits for image in images])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 8), (1, 4), (1, 1)])
def test_a_batch_of_one_image_trains_every_parameter(channels: int, side: int) -> None:
    with torch_stream(1, "test"):
        network = resnet11(3, channels)
        images = torch.rand(1, channels, side, side)
    F.cross_entropy(network(images).logits, torch.tensor([1])).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_gradient_reaches_every_parameter_of_resnet56() -> None:
    with torch_stream(2, "test"):
        network = resnet56(10)
        images = torch.rand(4, 3, 16, 16)
    F.cross_entropy(network(images).logits, torch.arange(4)).backward()
    still = [name for name, weight in network.named_parameters() if not weight.grad.any()]
    assert still == []
