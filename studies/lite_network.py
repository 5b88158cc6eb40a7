"""EfficientNet-Lite0 with ImageNet weights as an own network of a recipe, to be fine-tuned.

`model.name = "studies.lite_network:build"` in a recipe whose data has pixels in [0, 1]
(`data.normalize = "none"`).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from studies.lite_features import pretrained


class LiteNetwork(nn.Module):
    """The pretrained network with a classifier of its own; one channel stands for all three.

    Args:
        classes: the number of classes.
        shape: channels, height and width of the images.
    """

    def __init__(self, classes: int, shape: Sequence[int]) -> None:
        super().__init__()
        self.channels = shape[0]
        self.body = pretrained()
        width: int = self.body._fc.in_features  # type: ignore[assignment, union-attr]
        self.body._fc = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images with pixels in [0, 1]."""
        colors = images.expand(-1, 3, -1, -1) if self.channels == 1 else images
        logits: Tensor = self.body((255 * colors - 127) / 128)
        return logits


def build(classes: int, shape: Sequence[int]) -> nn.Module:
    """Return the network for these classes and images."""
    return LiteNetwork(classes, shape)
