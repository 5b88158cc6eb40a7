"""What every network returns and offers: logits, embedding, stages and tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from fedbb.errors import RecipeError


class Outputs(NamedTuple):
    """Logits (N, C), the embedding (N, D) they are made of, and the feature maps of each stage."""

    logits: Tensor
    embedding: Tensor
    stages: tuple[Tensor, ...]


class NetworkModule(nn.Module):
    """An `nn.Module` that returns `Outputs` for images (N, channels, height, width).

    A network of two or more stages may offer `tail`, which FedAlign needs.
    """

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
        raise _missing_tail(self, "a method that runs the last stage on fewer channels")


def check_tail(network: NetworkModule, method: str) -> None:
    """Check that a network has a tail, as FedAlign needs.

    Raises:
        RecipeError: it has not; the message names the method and the network.
    """
    if type(network).tail is NetworkModule.tail:
        raise _missing_tail(network, method)


def _missing_tail(network: NetworkModule, method: str) -> RecipeError:
    return RecipeError(
        f"{method} needs a network of at least two stages that can run its last stage again "
        f"(`tail`), and {type(network).__name__} is none; all networks that model.name can name "
        "have one"
    )
