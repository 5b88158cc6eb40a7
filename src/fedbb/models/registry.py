"""The networks a recipe may name."""

from __future__ import annotations

from typing import Protocol

from fedbb._util.names import nearest
from fedbb.errors import RecipeError
from fedbb.models.base import NetworkModule
from fedbb.models.efficientnet import EfficientNetB0
from fedbb.models.resnet_cifar import resnet11, resnet56
from fedbb.models.small_cnn import SmallCNN


class Builder(Protocol):
    """A network's class, or a function that returns one."""

    def __call__(self, classes: int, channels: int, projection: bool = ...) -> NetworkModule:
        """Return a fresh network."""
        ...


MODELS: dict[str, Builder] = {
    "resnet56": resnet56,
    "resnet11": resnet11,
    "small-cnn": SmallCNN,
    "efficientnet-b0": EfficientNetB0,
}


def build_model(
    name: str, classes: int, channels: int, *, projection: bool = False
) -> NetworkModule:
    """Return a new network.

    Its initial weights come from torch's global generator. For reproducible ones call it inside
    `with torch_stream(seed, ...)`.

    Args:
        name: one of `MODELS`.
        classes: the number of classes.
        channels: the number of channels of the images.
        projection: whether it has MOON's projection head.

    Raises:
        RecipeError: the name is unknown.
    """
    if name not in MODELS:
        raise RecipeError(f"model {name!r} is unknown{nearest(name, MODELS)}")
    return MODELS[name](classes, channels, projection)
