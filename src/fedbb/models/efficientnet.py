"""EfficientNet-B0, which the paper trains centrally on chest X-rays, and its MBConv blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedbb.models.base import BatchNorm, NetworkModule, Outputs, head, run_slim

STEM = 32
EMBEDDING = 1280
DROP = 0.2
SQUEEZE = 4


class Stage(NamedTuple):
    """Blocks of one kind; the first alone has the stride."""

    expansion: int
    kernel: int
    stride: int
    outputs: int
    blocks: int


STAGES = (
    Stage(1, 3, 1, 16, 1),
    Stage(6, 3, 2, 24, 2),
    Stage(6, 5, 2, 40, 2),
    Stage(6, 3, 2, 80, 3),
    Stage(6, 5, 1, 112, 3),
    Stage(6, 5, 2, 192, 4),
    Stage(6, 3, 1, 320, 1),
)


class EfficientNetB0(NetworkModule):
    """Stem, seven stages of inverted bottlenecks, 1×1 to 1280 channels, mean, dropout, linear.

    The stem and four of the stages halve the image. The 1×1 convolution counts as part of the last
    stage. The initial weights are drawn from torch's generator.

    Meant for images from 64×64. Of smaller ones the last stages see a single place, where
    normalizing a batch of two to four images makes gradients explode; clipping helps then.
    """

    def __init__(self, classes: int, channels: int = 3, projection: bool = False) -> None:
        super().__init__()
        self.stem = unit(channels, STEM, kernel=3, stride=2)
        self.stages = _stages()
        self.top = unit(STAGES[-1].outputs, EMBEDDING)
        self.dropout = nn.Dropout(DROP)
        self.projection, self.fc = head(EMBEDDING, classes, projection)
        _initialize(self)

    def forward(self, images: Tensor) -> Outputs:
        """Return logits, the embedding (N, 1280 or 256) and the outputs of the seven stages."""
        maps = [self.stem(images)]
        for stage in self.stages[:-1]:
            maps.append(stage(maps[-1]))
        maps.append(self.tail(maps[-1], width=1))
        embedding = self.projection(maps[-1].mean(dim=(2, 3)))
        return Outputs(self.fc(self.dropout(embedding)), embedding, tuple(maps[1:]))

    def tail(self, hidden: Tensor, width: float) -> Tensor:
        """Run the last stage on the leading channels of the sixth's output."""
        for block in self.stages[-1].children():
            hidden = block(hidden, width)
        return run_slim(hidden, width, self.top)


def _stages() -> nn.ModuleList:
    """Return the stages; the later a block, the more often it is dropped (stochastic depth)."""
    made: list[nn.Sequential] = []
    total, number, inputs = sum(stage.blocks for stage in STAGES), 0, STEM
    for expansion, kernel, stride, outputs, blocks in STAGES:
        made.append(nn.Sequential())
        for index in range(blocks):
            shape = BlockShape(inputs, outputs, expansion, kernel, stride if index == 0 else 1)
            made[-1].append(MBConv(shape, drop=DROP * number / total))
            number, inputs = number + 1, outputs
    return nn.ModuleList(made)


def _initialize(network: nn.Module) -> None:
    """Draw convolutions from Kaiming's normal by fan-out, without bias; the rest is torch's."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


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
    """An inverted bottleneck, dropped for a share `drop` of the images in training."""

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
