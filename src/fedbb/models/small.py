"""Small networks for quick runs and comparisons: linear, MLP, LeNet, and a small CNN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from fedbb.errors import RecipeError
from fedbb.models.base import NetworkModule, Outputs, head, run_slim

HIDDEN = (200, 200)
CONVOLUTIONS = (6, 16)
UNITS = (120, 84)
KERNEL = 5
LEAST = 16
"""Rows and columns that LeNet needs, so that one place is left."""

GRID = 4
EMBEDDING = 128


class MLP(nn.Module):
    """Flattened inputs, hidden layers with rectifier and dropout, and a linear classifier.

    The default is the 2NN of McMahan et al. (2017); without hidden layers it is a linear model.

    Args:
        classes: the number of classes.
        shape: the shape of one input.
        projection: whether it has MOON's projection head.
        hidden: the units of each hidden layer.
        dropout: the share of hidden units that training drops.
    """

    def __init__(
        self,
        classes: int,
        shape: Sequence[int],
        projection: bool = False,
        *,
        hidden: Sequence[int] = HIDDEN,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not all(isinstance(units, int) and units > 0 for units in hidden):
            raise RecipeError(f"model.options.hidden is {list(hidden)}; allowed: units above 0")
        if not 0 <= dropout < 1:
            raise RecipeError(f"model.options.dropout is {dropout}; allowed: 0 to below 1")
        widths = [math.prod(shape), *hidden]
        self.hidden = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.dropout = nn.Dropout(dropout)
        self.projection, self.fc = head(widths[-1], classes, projection)

    def forward(self, inputs: Tensor) -> Outputs:
        """Return logits and the embedding, which is the last hidden layer."""
        embedding = inputs.flatten(1)
        for layer in self.hidden:
            embedding = self.dropout(F.relu(layer(embedding)))
        embedding = self.projection(embedding)
        return Outputs(self.fc(embedding), embedding)


def linear(classes: int, shape: Sequence[int], projection: bool = False) -> MLP:
    """Return softmax regression, or logistic regression for each label."""
    return MLP(classes, shape, projection, hidden=())


class LeNet(NetworkModule):
    """NIID-Bench's simple CNN: two 5×5 convolutions of 6 and 16 channels, 120 and 84 units, linear.

    Each convolution is followed by a 2×2 maximum and a rectifier; in this order the rectifier has a
    quarter of the numbers, and values and gradients are the same. The initial weights are torch's
    default, from its generator.

    Args:
        classes: the number of classes.
        shape: channels, height and width of the images, from 16×16.
        projection: whether it has MOON's projection head.
    """

    def __init__(self, classes: int, shape: Sequence[int], projection: bool = False) -> None:
        super().__init__()
        channels, *size = shape
        if len(size) != 2 or min(size) < LEAST:
            sizes = "×".join(str(length) for length in shape)
            raise RecipeError(
                f"model lenet takes images (channels × height × width) from {LEAST}×{LEAST}, and "
                f"an input of the data is {sizes}"
            )
        first, second = CONVOLUTIONS
        places = math.prod(((length - 4) // 2 - 4) // 2 for length in size)
        self.conv1 = nn.Conv2d(channels, first, KERNEL)
        self.conv2 = nn.Conv2d(first, second, KERNEL)
        self.fc1 = nn.Linear(second * places, UNITS[0])
        self.fc2 = nn.Linear(*UNITS)
        self.projection, self.fc = head(UNITS[1], classes, projection)

    def forward(self, images: Tensor) -> Outputs:
        """Return logits, the embedding (N, 84 or 256) and the outputs of both convolutions."""
        first = F.relu(F.max_pool2d(self.conv1(images), kernel_size=2))
        second = self.tail(first, width=1)
        embedding = F.relu(self.fc2(F.relu(self.fc1(second.flatten(1)))))
        embedding = self.projection(embedding)
        return Outputs(self.fc(embedding), embedding, (first, second))

    def tail(self, hidden: Tensor, width: float) -> Tensor:
        """Run the second convolution on the leading channels of the first one's output."""
        return F.relu(F.max_pool2d(run_slim(hidden, width, self.conv2), kernel_size=2))


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
        first = F.relu(F.max_pool2d(self.conv1(images), kernel_size=2))
        second = self.tail(first, width=1)
        grid = F.adaptive_avg_pool2d(second, GRID)
        embedding = self.projection(F.relu(self.hidden(grid.flatten(1))))
        return Outputs(self.fc(embedding), embedding, (first, second))

    def tail(self, hidden: Tensor, width: float) -> Tensor:
        """Run the second convolution on the leading channels of the first one's output."""
        return F.relu(run_slim(hidden, width, self.conv2))
