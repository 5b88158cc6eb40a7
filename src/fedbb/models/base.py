"""What every network returns, and what penalties may look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from torch import Tensor, nn


class Outputs(NamedTuple):
    """Logits (N, C), the embedding (N, D) they are made of, and the feature maps of each stage."""

    logits: Tensor
    embedding: Tensor
    stages: tuple[Tensor, ...]


class Network(Protocol):
    """An `nn.Module` that returns `Outputs` for a batch of images (N, channels, height, width)."""

    def __call__(self, images: Tensor) -> Outputs:
        """Run the forward pass."""
        ...


class NetworkModule(nn.Module):
    """A `Network` that type checkers also know as an `nn.Module`; our own networks extend it."""

    if TYPE_CHECKING:

        def __call__(self, images: Tensor) -> Outputs:
            """Run the forward pass."""
            ...
