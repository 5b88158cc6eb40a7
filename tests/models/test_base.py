"""The tail of a network is its last stage, whole or on the leading channels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from fedbb.errors import RecipeError
from fedbb.models.base import BatchNorm, NetworkModule, Projection, leading, run_slim, slim_channels
from fedbb.models.registry import MODELS, build_model
from fedbb.models.resnet_cifar import Bottleneck, ResNet, resnet11, resnet56
from fedbb.models.small import SmallCNN
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


def warmed_up(kind: type[nn.BatchNorm2d]) -> nn.BatchNorm2d:
    """Return a normalization of three channels that has seen a batch."""
    with torch_stream(0, "test"):
        layer = kind(3)
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
        layer(2 + 3 * torch.randn(8, 3, 4, 4))
    return layer


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3), height=st.integers(1, 3), width=st.integers(1, 3), train=st.booleans()
)
def test_it_equals_torch_bit_for_bit_wherever_torch_is_defined(
    batch: int, height: int, width: int, train: bool
) -> None:
    ours, theirs = warmed_up(BatchNorm).train(train), warmed_up(nn.BatchNorm2d).train(train)
    if train and batch * height * width == 1:
        theirs.eval()
    maps = torch.linspace(-1, 1, batch * 3 * height * width).reshape(batch, 3, height, width)
    assert torch.equal(ours(maps), theirs(maps))
    for name, buffer in ours.named_buffers():
        assert torch.equal(buffer, theirs.get_buffer(name)), name


def test_one_value_per_channel_leaves_the_statistics_alone_and_gives_gradients() -> None:
    layer = warmed_up(BatchNorm)
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    maps = torch.tensor([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1).requires_grad_()
    layer(maps).sum().backward()
    assert all(torch.equal(buffer, before[name]) for name, buffer in layer.named_buffers())
    expected = layer.weight / (layer.running_var + layer.eps).sqrt()
    torch.testing.assert_close(maps.grad.flatten(), expected.detach())
    assert torch.equal(layer.bias.grad, torch.ones(3))


@pytest.mark.parametrize(
    ("channels", "width", "kept"),
    [
        (64, 0.25, 16),
        (256, 0.25, 64),
        (128, 0.25, 32),
        (16, 0.25, 8),  # 4 is half way and goes up
        (48, 0.25, 16),  # 12 likewise
        (88, 0.25, 24),  # 22 is nearer to 24
        (76, 0.25, 24),  # 19 would go to 16, which is below nine tenths of it
        (12, 0.25, 9),  # 3 would go to 0, is lifted to 1, below nine tenths of it, and 8 are added
        (4, 0.25, 1),
        (6, 0.9, 6),  # never more than there are
        (100, 1, 100),
    ],
)
def test_channels_kept_are_those_worked_by_hand(channels: int, width: float, kept: int) -> None:
    assert slim_channels(channels, width) == kept


@given(channels=st.integers(1, 2048), width=st.floats(0.01, 1))
def test_kept_channels_are_nine_tenths_of_the_share_at_least_and_never_too_many(
    channels: int, width: float
) -> None:
    kept = slim_channels(channels, width)
    assert 1 <= kept <= channels
    assert kept >= 0.9 * channels * width
    assert kept <= channels * width + 8


@pytest.mark.parametrize("width", [0, -0.5, 1.01, float("nan")])
def test_a_width_that_is_no_share_is_refused(width: float) -> None:
    with pytest.raises(ValueError, match="not a share; above 0, at most 1"):
        slim_channels(64, width)


def test_leading_channels_are_the_first_ones() -> None:
    maps = torch.arange(64.0).reshape(1, 64, 1, 1)
    assert leading(maps, 0.25).flatten().tolist() == list(range(16))


def layers() -> list[nn.Module]:
    """Return a plain, a strided, a depthwise convolution, a normalization, each 64 → 64."""
    with torch_stream(0, "test"):
        made = [
            nn.Conv2d(64, 64, 3, padding=1, bias=False),
            nn.Conv2d(64, 64, 1, stride=2),
            nn.Conv2d(64, 64, 5, padding=2, groups=64, bias=False),
            BatchNorm(64),
        ]
        nn.init.normal_(made[-1].weight)
        nn.init.normal_(made[-1].bias)
    return [layer.double() for layer in made]


def maps_of(channels: int, batch: int = 3, side: int = 5) -> torch.Tensor:
    with torch_stream(1, "test"):
        return torch.randn(batch, channels, side, side, dtype=torch.float64)


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("width", [0.25, 0.5])
def test_a_slim_layer_is_the_narrow_layer_with_the_leading_weights(kind: int, width: float) -> None:
    layer, kept = layers()[kind], slim_channels(64, width)
    expected = narrowed(layer, kept, kept)(maps_of(kept))
    torch.testing.assert_close(run_slim(maps_of(kept), width, layer), expected)


@pytest.mark.parametrize("training", [True, False])
def test_slim_normalization_neither_uses_nor_moves_running_statistics(training: bool) -> None:
    layer = layers()[-1].train(training)
    layer.running_mean.fill_(7)
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    plain = run_slim(maps_of(16), 0.25, layer)
    assert all(torch.equal(buffer, before[name]) for name, buffer in layer.named_buffers())
    shifted = run_slim(maps_of(16) + 100, 0.25, layer)
    torch.testing.assert_close(plain, shifted)


def test_one_value_per_channel_is_normalized_by_the_running_statistics() -> None:
    layer = layers()[-1]
    layer.running_mean.copy_(torch.arange(64))
    maps = torch.full((1, 16, 1, 1), 3.0, dtype=torch.float64)
    scale = layer.weight[:16] / (1 + layer.eps) ** 0.5
    expected = (3 - torch.arange(16)) * scale + layer.bias[:16]
    torch.testing.assert_close(run_slim(maps, 0.25, layer).flatten(), expected)


def test_a_sequence_runs_its_layers_and_leaves_those_without_channels_as_they_are() -> None:
    convolution, *_, normalization = layers()
    sequence = nn.Sequential(convolution, nn.Sequential(normalization, nn.ReLU()))
    step = run_slim(maps_of(16), 0.25, convolution, normalization).clamp(min=0)
    assert torch.equal(run_slim(maps_of(16), 0.25, sequence), step)
    assert torch.equal(run_slim(maps_of(16), 0.25, nn.Identity()), maps_of(16))


@pytest.mark.parametrize("kind", range(4))
def test_width_one_is_the_layer_itself(kind: int) -> None:
    first, second = layers()[kind], layers()[kind]
    assert torch.equal(run_slim(maps_of(64), 1, first), second(maps_of(64)))
    for name, buffer in first.named_buffers():
        assert torch.equal(buffer, second.get_buffer(name))


def test_too_many_channels_are_refused_rather_than_used() -> None:
    with pytest.raises(RuntimeError, match="channels"):
        run_slim(maps_of(64), 0.25, layers()[0])


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("classes", "expected"), [(10, 722_906), (14, 723_934), (100, 746_036), (200, 771_736)]
)
def test_resnet56_with_the_head_has_the_stated_number_of_parameters(
    classes: int, expected: int
) -> None:
    assert parameters(resnet56(classes, projection=True)) == expected


def test_the_head_is_two_linear_maps_with_a_rectifier_between() -> None:
    head = Projection(2)
    head.inner.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    head.inner.bias.data = torch.tensor([0.0, 1.0])
    head.outer.weight.data = torch.ones(256, 2)
    head.outer.bias.data = torch.arange(256.0)
    projected = head(torch.tensor([[-5.0, 3.0]]))
    assert torch.equal(projected, 4 + torch.arange(256.0)[None])


@pytest.mark.parametrize("name", MODELS)
def test_with_the_head_the_embedding_is_the_projection_and_the_classifier_sits_on_it(
    name: str,
) -> None:
    network = build_model(name, 5, (1, 32, 32), projection=True).eval()
    outputs = network(torch.rand(2, 1, 32, 32))
    assert outputs.embedding.shape == (2, 256)
    assert network.fc.weight.shape == (5, 256)
    torch.testing.assert_close(network.fc(outputs.embedding), outputs.logits)


@pytest.mark.parametrize("name", MODELS)
def test_the_head_adds_its_four_parameters_and_without_it_a_network_holds_none(name: str) -> None:
    keys = build_model(name, 5, (1, 32, 32)).state_dict().keys()
    added = build_model(name, 5, (1, 32, 32), projection=True).state_dict().keys() - keys
    assert not any("projection" in key for key in keys)
    layers = ("inner", "outer")
    assert added == {
        f"projection.{layer}.{part}" for layer in layers for part in ("weight", "bias")
    }


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_of_one_image_keeps_its_shape_and_trains_the_head(name: str) -> None:
    with torch_stream(1, "test"):
        network = build_model(name, 3, (1, 32, 32), projection=True)
        outputs = network(torch.rand(1, 1, 32, 32))
    assert outputs.embedding.shape == (1, 256)
    outputs.logits.square().sum().backward()
    assert all(parameter.grad.any() for parameter in network.projection.parameters())
