"""EfficientNet-B0 in evaluation, step by step from tensors under torchvision's names."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F

# Expansion, kernel, stride of the first block, outputs, blocks.
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def published_shapes(classes: int) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor of the published file, written out by rule."""
    shapes = _unit("features.0", 32, 3, 3)
    inputs = 32
    for stage, (expansion, kernel, _, outputs, blocks) in enumerate(STAGES, start=1):
        for block in range(blocks):
            shapes |= _block(f"features.{stage}.{block}.block", inputs, outputs, expansion, kernel)
            inputs = outputs
    shapes |= _unit("features.8", 1280, 320, 1)
    return shapes | {"classifier.1.weight": (classes, 1280), "classifier.1.bias": (classes,)}


def _block(
    name: str, inputs: int, outputs: int, expansion: int, kernel: int
) -> dict[str, tuple[int, ...]]:
    inner, squeezed, place, shapes = inputs * expansion, inputs // 4, 0, {}
    if expansion > 1:
        shapes, place = _unit(f"{name}.0", inner, inputs, 1), 1
    shapes |= _unit(f"{name}.{place}", inner, 1, kernel)
    shapes[f"{name}.{place + 1}.fc1.weight"] = (squeezed, inner, 1, 1)
    shapes[f"{name}.{place + 1}.fc1.bias"] = (squeezed,)
    shapes[f"{name}.{place + 1}.fc2.weight"] = (inner, squeezed, 1, 1)
    shapes[f"{name}.{place + 1}.fc2.bias"] = (inner,)
    return shapes | _unit(f"{name}.{place + 2}", outputs, inner, 1)


def _unit(name: str, outputs: int, inputs: int, kernel: int) -> dict[str, tuple[int, ...]]:
    parts = ("weight", "bias", "running_mean", "running_var")
    return {
        f"{name}.0.weight": (outputs, inputs, kernel, kernel),
        **{f"{name}.1.{part}": (outputs,) for part in parts},
        f"{name}.1.num_batches_tracked": (),
    }


def efficientnet_logits(state: Mapping[str, Tensor], images: Tensor) -> Tensor:
    """Run stem, seven stages, 1×1 convolution, mean and linear map."""
    maps = F.silu(convolved(state, "features.0", images, stride=2))
    for stage, (expansion, _, first_stride, _, blocks) in enumerate(STAGES, start=1):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            name = f"features.{stage}.{block}.block"
            changed = inverted_bottleneck(state, name, maps, expansion > 1, stride)
            maps = changed + maps if changed.shape == maps.shape and stride == 1 else changed
    embedding = F.silu(convolved(state, "features.8", maps)).flatten(2).mean(dim=2)
    return embedding @ state["classifier.1.weight"].T + state["classifier.1.bias"]


def inverted_bottleneck(
    state: Mapping[str, Tensor], name: str, maps: Tensor, expands: bool, stride: int
) -> Tensor:
    """Widen if it does, look around in each channel, weigh the channels, project."""
    place = 0
    if expands:
        maps, place = F.silu(convolved(state, f"{name}.0", maps)), 1
    maps = F.silu(convolved(state, f"{name}.{place}", maps, stride, groups=maps.shape[1]))
    squeeze = f"{name}.{place + 1}"
    means = maps.flatten(2).mean(dim=2)
    small = means @ state[f"{squeeze}.fc1.weight"][:, :, 0, 0].T + state[f"{squeeze}.fc1.bias"]
    small = small * small.sigmoid()
    scale = small @ state[f"{squeeze}.fc2.weight"][:, :, 0, 0].T + state[f"{squeeze}.fc2.bias"]
    maps = maps * scale.sigmoid()[:, :, None, None]
    return convolved(state, f"{name}.{place + 2}", maps)


def convolved(
    state: Mapping[str, Tensor], name: str, maps: Tensor, stride: int = 1, groups: int = 1
) -> Tensor:
    """Convolve, then normalize by the running statistics."""
    weight = state[f"{name}.0.weight"]
    maps = F.conv2d(maps, weight, stride=stride, padding=weight.shape[-1] // 2, groups=groups)
    mean, variance, scale, shift = (
        state[f"{name}.1.{part}"].reshape(1, -1, 1, 1)
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (maps - mean) / (variance + 1e-5).sqrt() * scale + shift
