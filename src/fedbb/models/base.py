"""What every network returns, and what penalties may look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn


class Outputs(NamedTuple):
    """Logits (N, C), the embedding (N, D) they are made of, and the feature maps of each stage."""

    logits: Tensor
    embedding: Tensor
    stages: tuple[Tensor, ...]


class NetworkModule(nn.Module):
    """An `nn.Module` that returns `Outputs` for images (N, channels, height, width)."""

    if TYPE_CHECKING:

        def __call__(self, images: Tensor) -> Outputs:
            """Run the forward pass."""
            ...
