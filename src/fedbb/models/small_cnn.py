"""A small convolutional network without batch normalization, for quick runs and small clients."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from fedbb.models.base import NetworkModule, Outputs
from fedbb.models.blocks import head, run_slim

GRID = 4
EMBEDDING = 128


class SmallCNN(NetworkModule):
    """Two 3×3 convolutions of 16 and 32 channels, a 4×4 grid of means, 128 hidden units, linear.

    Takes images of any size from 8×8. The initial weights are torch's default, from its generator.
    """

    def __init__(self, classes: int, channels: int = 3, projection: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3, padding=1)
        self.hidden = nn.Linear(32 * GRID * GRID, EMBEDDING)
        self.projection, self.fc = head(EMBEDDING, classes, projection)

    def forward(self, images: Tensor) -> Outputs:
        """Return logits, the embedding (N, 128 or 256) and the outputs of both convolutions."""
        first = F.max_pool2d(F.relu(self.conv1(images)), kernel_size=2)
        second = self.tail(first, width=1)
        grid = F.adaptive_avg_pool2d(second, GRID)
        embedding = self.projection(F.relu(self.hidden(grid.flatten(1))))
        return Outputs(self.fc(embedding), embedding, (first, second))

    def tail(self, hidden: Tensor, width: float) -> Tensor:
        """Run the second convolution on the leading channels of the first one's output."""
        return F.relu(run_slim(hidden, width, self.conv2))
