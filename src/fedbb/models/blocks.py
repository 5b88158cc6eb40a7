"""Building blocks of the networks: batch norm, layers at part of their width, projection head.

FedAlign runs the last stage of a network on its leading channels only. Nothing here changes a
layer for that: the same parameters are cut at the moment of use.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

MULTIPLE = 8
PROJECTED = 256


class BatchNorm(nn.BatchNorm2d):
    """`nn.BatchNorm2d`, which trains on a single value by means of its running statistics.

    One value has no variance, so torch refuses it. Here a client of one small image is an ordinary
    client: it is normalized as in evaluation, and the running statistics stay as they are.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (N, C, H, W) per channel."""
        if not (self.training and _is_one_value_per_channel(input)):
            return super().forward(input)
        mean, variance = self.running_mean, self.running_var
        return F.batch_norm(input, mean, variance, self.weight, self.bias, eps=self.eps)


def _is_one_value_per_channel(maps: Tensor) -> bool:
    return maps.numel() == maps.shape[1]


def slim_channels(channels: int, width: float) -> int:
    """Return how many channels a narrow layer keeps: about a share `width`, a multiple of 8.

    >>> [slim_channels(channels, 0.25) for channels in (32, 64, 128, 256)]
    [8, 16, 32, 64]
    """
    if not 0 < width <= 1:
        raise ValueError(f"width {width} is not a share; above 0, at most 1 is allowed")
    exact = channels * width
    rounded = max(1, int(exact + MULTIPLE / 2) // MULTIPLE * MULTIPLE)
    if rounded < 0.9 * exact:
        rounded += MULTIPLE
    return min(rounded, channels)


def leading(maps: Tensor, width: float) -> Tensor:
    """Return the leading channels of maps (N, C, H, W)."""
    return maps[:, : slim_channels(maps.shape[1], width)]


def run_slim(maps: Tensor, width: float, *layers: nn.Module) -> Tensor:
    """Run convolutions, normalizations and sequences of them, one after another, at this width.

    A layer without channels of its own runs as it is. At width 1 every layer does.
    """
    for layer in layers:
        maps = layer(maps) if width == 1 else _run(layer, maps, width)
    return maps


def _run(layer: nn.Module, maps: Tensor, width: float) -> Tensor:
    if isinstance(layer, nn.Sequential):
        return run_slim(maps, width, *layer)
    if isinstance(layer, nn.Conv2d):
        return _convolve(layer, maps, width)
    if isinstance(layer, nn.BatchNorm2d):
        return _normalize(layer, maps, width)
    result: Tensor = layer(maps)
    return result


def _convolve(layer: nn.Conv2d, maps: Tensor, width: float) -> Tensor:
    """Convolve by the leading part of the weights; a depthwise layer keeps one group a channel."""
    outputs = slim_channels(layer.out_channels, width)
    is_depthwise = layer.groups > 1
    inputs = 1 if is_depthwise else slim_channels(layer.in_channels, width)
    return F.conv2d(
        maps,
        layer.weight[:outputs, :inputs],
        None if layer.bias is None else layer.bias[:outputs],
        layer.stride,
        layer.padding,
        groups=outputs if is_depthwise else 1,
    )


def _normalize(layer: nn.BatchNorm2d, maps: Tensor, width: float) -> Tensor:
    """Normalize by the batch's own statistics: the running ones belong to the full width."""
    channels = slim_channels(layer.num_features, width)
    weight, bias = layer.weight[:channels], layer.bias[:channels]
    if maps.numel() > channels:
        return F.batch_norm(maps, None, None, weight, bias, training=True, eps=layer.eps)
    # One value has no variance; the running statistics of the same channels are the nearest.
    assert layer.running_mean is not None
    assert layer.running_var is not None
    mean, variance = layer.running_mean[:channels], layer.running_var[:channels]
    return F.batch_norm(maps, mean, variance, weight, bias, eps=layer.eps)


class Projection(nn.Module):
    """Linear to the same width, rectifier, linear to 256."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, PROJECTED)

    def forward(self, embedding: Tensor) -> Tensor:
        """Return what MOON contrasts, of shape (N, 256)."""
        result: Tensor = self.outer(F.relu(self.inner(embedding)))
        return result


def head(width: int, classes: int, projection: bool) -> tuple[nn.Module, nn.Linear]:
    """Return what an embedding of this width goes through, and the classifier on top of it.

    Without projection the first does nothing, holds nothing and draws no random numbers.
    """
    if projection:
        return Projection(width), nn.Linear(PROJECTED, classes)
    return nn.Identity(), nn.Linear(width, classes)
