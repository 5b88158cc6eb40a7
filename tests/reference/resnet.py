"""The bottleneck ResNet in evaluation, step by step from the numbers of its state dict."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F


def resnet_logits(state: Mapping[str, Tensor], images: Tensor, blocks: tuple[int, ...]) -> Tensor:
    """Run stem, layers, mean and linear map; every second-and-later layer begins with stride 2."""
    maps = normalized(state, "bn1", F.conv2d(images, state["conv1.weight"], padding=1)).clamp(min=0)
    for layer, count in enumerate(blocks, start=1):
        for block in range(count):
            stride = 2 if layer > 1 and block == 0 else 1
            maps = bottleneck(state, f"layer{layer}.{block}", maps, stride)
    embedding = maps.flatten(2).sum(dim=2) / (maps.shape[2] * maps.shape[3])
    return embedding @ state["fc.weight"].T + state["fc.bias"]


def bottleneck(state: Mapping[str, Tensor], name: str, maps: Tensor, stride: int) -> Tensor:
    """Narrow, look around, widen, add the shortcut; no rectifier between widening and adding."""
    inner = F.conv2d(maps, state[f"{name}.conv1.weight"])
    inner = normalized(state, f"{name}.bn1", inner).clamp(min=0)
    inner = F.conv2d(inner, state[f"{name}.conv2.weight"], stride=stride, padding=1)
    inner = normalized(state, f"{name}.bn2", inner).clamp(min=0)
    inner = normalized(state, f"{name}.bn3", F.conv2d(inner, state[f"{name}.conv3.weight"]))
    if f"{name}.downsample.0.weight" in state:
        maps = F.conv2d(maps, state[f"{name}.downsample.0.weight"], stride=stride)
        maps = normalized(state, f"{name}.downsample.1", maps)
    return (inner + maps).clamp(min=0)


def normalized(state: Mapping[str, Tensor], name: str, maps: Tensor) -> Tensor:
    """Subtract the running mean, divide by the running spread, scale and shift."""
    mean, variance, weight, bias = (
        state[f"{name}.{part}"].reshape(1, -1, 1, 1)
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (maps - mean) / (variance + 1e-5).sqrt() * weight + bias
