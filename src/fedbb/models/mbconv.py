"""EfficientNet's block: expand, look around in each channel, weigh the channels, project."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedbb.models.batch_norm import BatchNorm
from fedbb.models.slim import run_slim

SQUEEZE = 4


@dataclass(frozen=True)
class BlockShape:
    """Channels that come in and go out, how many times more inside, and the middle convolution."""

    inputs: int
    outputs: int
    expansion: int
    kernel: int
    stride: int

    @property
    def is_residual(self) -> bool:
        """Whether the block's input can be added to its output."""
        return self.stride == 1 and self.inputs == self.outputs


class MBConv(nn.Module):
    """An inverted bottleneck, left out for a share `drop` of the images in training."""

    def __init__(self, shape: BlockShape, drop: float) -> None:
        super().__init__()
        self.shape, self.drop = shape, drop
        inner = shape.inputs * shape.expansion
        self.expand = unit(shape.inputs, inner) if shape.expansion > 1 else nn.Identity()
        self.depthwise = unit(inner, inner, shape.kernel, shape.stride, groups=inner)
        self.excite = Excitation(inner, shape.inputs // SQUEEZE)
        self.project = unit(inner, shape.outputs)[:2]

    def forward(self, maps: Tensor, width: float = 1.0) -> Tensor:
        """Return maps of `outputs` channels, or the leading ones of them."""
        inner = run_slim(maps, width, self.expand, self.depthwise)
        inner = run_slim(self.excite(inner, width), width, self.project)
        if not self.shape.is_residual:
            return inner
        return maps + (_drop_images(inner, self.drop) if self.training else inner)


class Excitation(nn.Module):
    """Multiply each channel by a number in (0, 1) that all channels' means decide."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, kernel_size=1)
        self.restore = nn.Conv2d(squeezed, channels, kernel_size=1)

    def forward(self, maps: Tensor, width: float = 1.0) -> Tensor:
        """Return maps of the same shape."""
        means = maps.mean(dim=(2, 3), keepdim=True)
        squeezed = F.silu(run_slim(means, width, self.reduce))
        return maps * torch.sigmoid(run_slim(squeezed, width, self.restore))


def unit(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return convolution, normalization and activation."""
    convolution = nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False
    )
    return nn.Sequential(convolution, BatchNorm(outputs), nn.SiLU())


def _drop_images(maps: Tensor, drop: float) -> Tensor:
    """Set a random share of the images to zero and scale up the rest, keeping the mean."""
    kept = maps.new_empty(len(maps), 1, 1, 1).bernoulli_(1 - drop)
    return maps * kept / (1 - drop)
