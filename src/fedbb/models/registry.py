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
    """Return a fresh network for images of so many channels, with MOON's projection if wanted.

    Its initial weights come from torch's global generator. Whoever wants the same ones again calls
    this inside `with torch_stream(seed, ...)`.
    """
    if name not in MODELS:
        raise RecipeError(f"model {name!r} is unknown{nearest(name, MODELS)}")
    return MODELS[name](classes, channels, projection)
