"""MOON's projection head, which sits between a network's embedding and its classifier."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

PROJECTED = 256


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
