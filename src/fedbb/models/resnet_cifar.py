"""Bottleneck ResNets for small images, by block counts per layer; one is the paper's ResNet56."""

from __future__ import annotations

from torch import Tensor, nn

from fedbb.models.base import BatchNorm, NetworkModule, Outputs, head, run_slim

STEM = 16
PLANES = (16, 32, 64)
EXPANSION = 4


class ResNet(NetworkModule):
    """Stem without pooling, three layers of bottlenecks with outputs 64, 128 and 256, mean, linear.

    The second and third layer halve the image. Names of parameters are those customary for ResNets,
    so that state dicts from elsewhere fit. The initial weights are drawn from torch's generator.
    """

    def __init__(
        self,
        blocks: tuple[int, int, int],
        classes: int,
        channels: int = 3,
        projection: bool = False,
    ) -> None:
        super().__init__()
        widths = [STEM, *(planes * EXPANSION for planes in PLANES)]
        self.conv1 = _convolution(channels, STEM, size=3)
        self.bn1 = BatchNorm(STEM)
        self.layer1 = _layer(widths[0], PLANES[0], blocks[0], stride=1)
        self.layer2 = _layer(widths[1], PLANES[1], blocks[1], stride=2)
        self.layer3 = _layer(widths[2], PLANES[2], blocks[2], stride=2)
        self.projection, self.fc = head(widths[3], classes, projection)
        _initialize(self)

    def forward(self, images: Tensor) -> Outputs:
        """Return logits, the embedding (N, 256) and the outputs of the three layers."""
        first = self.layer1(self.bn1(self.conv1(images)).relu_())
        second = self.layer2(first)
        third = self.layer3(second)
        embedding = self.projection(third.mean(dim=(2, 3)))
        return Outputs(self.fc(embedding), embedding, (first, second, third))

    def tail(self, hidden: Tensor, width: float) -> Tensor:
        """Run the third layer on the leading channels of the second's output."""
        for block in self.layer3:
            hidden = block(hidden, width)
        return hidden


class Bottleneck(nn.Module):
    """1×1 down to `planes`, 3×3 with the stride, 1×1 up to 4 times `planes`, plus the shortcut."""

    def __init__(self, width: int, planes: int, stride: int, project: bool) -> None:
        super().__init__()
        self.conv1 = _convolution(width, planes, size=1)
        self.bn1 = BatchNorm(planes)
        self.conv2 = _convolution(planes, planes, size=3, stride=stride)
        self.bn2 = BatchNorm(planes)
        self.conv3 = _convolution(planes, planes * EXPANSION, size=1)
        self.bn3 = BatchNorm(planes * EXPANSION)
        self.downsample = _projection(width, planes, stride) if project else nn.Identity()

    def forward(self, maps: Tensor, width: float = 1.0) -> Tensor:
        """Return 4 times `planes` channels, or the leading ones of them, smaller by the stride."""
        # In place, since memory is what limits a network of many thin layers.
        inner = run_slim(maps, width, self.conv1, self.bn1).relu_()
        inner = run_slim(inner, width, self.conv2, self.bn2).relu_()
        inner = run_slim(inner, width, self.conv3, self.bn3)
        return inner.add_(run_slim(maps, width, self.downsample)).relu_()


def resnet56(classes: int, channels: int = 3, projection: bool = False) -> ResNet:
    """Return the paper's network: 1 + 18·3 + 1 = 56 layers."""
    return ResNet((6, 6, 6), classes, channels, projection)


def resnet11(classes: int, channels: int = 3, projection: bool = False) -> ResNet:
    """Return the smallest of the family, for quick runs: 1 + 3·3 + 1 = 11 layers."""
    return ResNet((1, 1, 1), classes, channels, projection)


def _layer(width: int, planes: int, blocks: int, stride: int) -> nn.Sequential:
    """Return a layer whose first block alone has a stride and a projection."""
    first = Bottleneck(width, planes, stride, project=True)
    later = [Bottleneck(planes * EXPANSION, planes, 1, project=False) for _ in range(blocks - 1)]
    return nn.Sequential(first, *later)


def _projection(width: int, planes: int, stride: int) -> nn.Sequential:
    wider = planes * EXPANSION
    return nn.Sequential(_convolution(width, wider, size=1, stride=stride), BatchNorm(wider))


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def _initialize(network: nn.Module) -> None:
    """Draw convolutions from Kaiming's normal by fan-out; everything else keeps torch's default."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
