"""Layers at part of their width are the narrow layers one would build by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedbb.models.batch_norm import BatchNorm
from fedbb.models.slim import leading, run_slim, slim_channels
from fedbb.rng import torch_stream
from reference.narrow import narrowed


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
