"""fedbb's small CNN in plain torch, for environments that hold no fedbb."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

GRID = 4


class SmallNetwork(nn.Module):
    """Two 3×3 convolutions of 16 and 32 channels, a 4×4 grid of means, 128 hidden units, linear."""

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3, padding=1)
        self.hidden = nn.Linear(32 * GRID * GRID, 128)
        self.fc = nn.Linear(128, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        first = F.max_pool2d(F.relu(self.conv1(images)), kernel_size=2)
        second = F.relu(self.conv2(first))
        grid = F.adaptive_avg_pool2d(second, GRID).flatten(1)
        return self.fc(F.relu(self.hidden(grid)))
