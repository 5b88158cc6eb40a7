"""What every network returns and offers, and what penalties may look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torch import Tensor, nn

from fedbb.errors import RecipeError


class Outputs(NamedTuple):
    """Logits (N, C), the embedding (N, D) they are made of, and the feature maps of each stage."""

    logits: Tensor
    embedding: Tensor
    stages: tuple[Tensor, ...]


class NetworkModule(nn.Module):
    """An `nn.Module` that returns `Outputs` for images (N, channels, height, width).

    `stage_count` is the length of `Outputs.stages`. A network of two or more stages offers `tail`.
    """

    stage_count: ClassVar[int] = 1

    if TYPE_CHECKING:

        def __call__(self, images: Tensor) -> Outputs:
            """Run the forward pass."""
            ...

    def tail(self, hidden: Tensor, width: float) -> Tensor:
        """Run the last stage with the leading channels only, a share `width` of them.

        Args:
            hidden: the leading `slim_channels(channels, width)` channels of `stages[-2]`.
            width: above 0, at most 1; at 1 this is the last stage as in the forward pass.
        """
        raise RecipeError(
            f"{type(self).__name__} has no tail: a method that runs the last stage on fewer "
            "channels, such as FedAlign, needs a network with one"
        )
