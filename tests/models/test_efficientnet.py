"""EfficientNet-B0 has the published size and shapes, and drops what it should in training only."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedbb.models.base import leading
from fedbb.models.efficientnet import EfficientNetB0, MBConv
from fedbb.rng import torch_stream
from reference.macs import count_macs
from reference.narrow import narrowed


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def blocks_of(network: nn.Module) -> list[MBConv]:
    return [module for module in network.modules() if isinstance(module, MBConv)]


@pytest.mark.parametrize(
    ("classes", "channels", "expected"),
    [(1000, 3, 5_288_548), (14, 3, 4_025_482), (14, 1, 4_024_906), (10, 3, 4_020_358)],
)
def test_it_has_the_stated_number_of_parameters(classes: int, channels: int, expected: int) -> None:
    assert parameters(EfficientNetB0(classes, channels)) == expected


@pytest.mark.parametrize(("classes", "side", "millions"), [(1000, 224, 386), (14, 150, 190)])
def test_a_forward_pass_costs_the_stated_multiplications(
    classes: int, side: int, millions: int
) -> None:
    assert round(count_macs(EfficientNetB0(classes), (3, side, side)) / 1e6) == millions


@pytest.mark.parametrize("side", [8, 33, 64])
def test_outputs_have_the_shapes_of_any_image_size(side: int) -> None:
    outputs = EfficientNetB0(5).eval()(torch.rand(2, 3, side, side))
    sides = [-(-side // scale) for scale in (2, 4, 8, 16, 16, 32, 32)]
    channels = (16, 24, 40, 80, 112, 192, 1280)
    assert outputs.logits.shape == (2, 5)
    assert outputs.embedding.shape == (2, 1280)
    assert [tuple(stage.shape) for stage in outputs.stages] == [
        (2, channel, here, here) for channel, here in zip(channels, sides, strict=True)
    ]


def test_evaluation_is_deterministic_and_training_drops_parts() -> None:
    images = torch.rand(4, 3, 32, 32)
    network = EfficientNetB0(3).eval()
    assert torch.equal(network(images).logits, network(images).logits)
    network.train()
    with torch_stream(0, "test"):
        first, second = network(images), network(images)
    assert not torch.equal(first.embedding, second.embedding)
    assert not torch.equal(first.logits, network.fc(first.embedding))


def test_blocks_are_left_out_the_oftener_the_later_up_to_a_fifth() -> None:
    drops = [block.drop for block in blocks_of(EfficientNetB0(3))]
    assert drops == pytest.approx([0.2 * number / 16 for number in range(16)])


def test_nine_of_the_sixteen_blocks_have_a_shortcut() -> None:
    """Every block but the first of each stage: 16 − 7."""
    residual = [block.shape.is_residual for block in blocks_of(EfficientNetB0(3))]
    repeats = (1, 2, 2, 3, 3, 4, 1)
    assert residual == [index > 0 for number in repeats for index in range(number)]


def test_a_block_is_left_out_for_whole_images_and_scaled_up_for_the_rest() -> None:
    block = blocks_of(EfficientNetB0(3))[2].double()
    block.drop = 0.5
    with torch_stream(1, "test"):
        images = torch.rand(40, block.shape.inputs, 4, 4, dtype=torch.float64)
        changed = block(images) - images
    # Another drop leaves the batch's statistics, and with them the branch itself, as they are.
    block.drop = 0.0
    branch = block(images) - images
    dropped = (changed == 0).flatten(1).all(dim=1)
    assert 10 < dropped.sum() < 30
    torch.testing.assert_close(changed[~dropped], 2 * branch[~dropped])


def test_the_excitation_multiplies_channels_by_what_their_means_decide() -> None:
    """Means 1 and 3; squeezed 2·1 + 1·3 = 5; the factors are σ(silu(5)) and σ(0) = ½."""
    excite = blocks_of(EfficientNetB0(3))[0].excite
    for layer in (excite.reduce, excite.restore):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    excite.reduce.weight.data[0, :2, 0, 0] = torch.tensor([2.0, 1.0])
    excite.restore.weight.data[0, 0] = 1.0
    maps = torch.zeros(1, 32, 1, 2)
    maps[0, 0], maps[0, 1] = torch.tensor([0.0, 2.0]), torch.tensor([3.0, 3.0])
    result = excite(maps)
    first = torch.sigmoid(torch.tensor(5.0) * torch.sigmoid(torch.tensor(5.0)))
    torch.testing.assert_close(result[0, 0, 0], torch.tensor([0.0, 2.0]) * first)
    torch.testing.assert_close(result[0, 1, 0], torch.tensor([1.5, 1.5]))


def test_the_tail_is_that_of_narrow_layers_with_copied_weights() -> None:
    with torch_stream(2, "test"):
        network = EfficientNetB0(3)
        hidden = leading(torch.randn(3, 192, 2, 2), 0.25)
    (block,) = network.stages[-1]
    inner = hidden
    for part, inputs in ((block.expand, 48), (block.depthwise, 288)):
        inner = narrowed(part[1], 288, 288)(narrowed(part[0], inputs, 288)(inner))
        inner = F.silu(inner)
    means = inner.mean(dim=(2, 3), keepdim=True)
    small = F.silu(narrowed(block.excite.reduce, 288, 16)(means))
    inner = inner * torch.sigmoid(narrowed(block.excite.restore, 16, 288)(small))
    inner = narrowed(block.project[1], 80, 80)(narrowed(block.project[0], 288, 80)(inner))
    expected = F.silu(narrowed(network.top[1], 320, 320)(narrowed(network.top[0], 80, 320)(inner)))
    torch.testing.assert_close(network.tail(hidden, 0.25), expected, rtol=1e-4, atol=1e-5)


def test_convolutions_start_with_the_spread_of_fan_out_and_no_bias() -> None:
    with torch_stream(3, "test"):
        network = EfficientNetB0(3)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            expected = (2 / (module.out_channels * module.kernel_size[0] ** 2)) ** 0.5
            tolerance = 5 / (2 * module.weight.numel()) ** 0.5
            assert module.weight.std().item() == pytest.approx(expected, rel=tolerance)
            assert module.bias is None or not module.bias.any()


@pytest.mark.parametrize(("batch", "side"), [(4, 32), (1, 32), (1, 8)])
def test_gradients_are_finite_for_every_parameter_that_was_not_left_out(
    batch: int, side: int
) -> None:
    with torch_stream(4, "test"):
        network = EfficientNetB0(3, channels=1)
        for block in blocks_of(network):
            block.drop = 0.0
        logits = network(torch.rand(batch, 1, side, side)).logits
    F.cross_entropy(logits, torch.arange(batch) % 3).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
