"""FedAlign: the last stage is aligned with a narrower copy of itself (Mendieta et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbb.models.base import check_tail, run_tail, slim_channels
from fedbb.penalties.base import Anchors, Needs, Step
from fedbb.penalties.proximal import check_strength

ITERATIONS = 10
TINY = 1e-12


@dataclass(frozen=True)
class Alignment:
    """A term of μ times the size of the loss that aligns top singular values.

    The last stage runs a second time on its leading channels only. The term pulls the top singular
    value of the narrow stage's transmitting matrix towards that of the whole stage.

    Args:
        mu: the size of the term in units of the supervised loss.
        width: the share of the channels of the narrow stage.
        clip: the largest norm of the whole gradient; None: no clipping.

    Raises:
        ValueError: a value is out of range.
    """

    mu: float = 0.45
    width: float = 0.25
    clip: float | None = 10.0

    def __post_init__(self) -> None:
        check_strength("mu", self.mu)
        if not 0.0 < self.width < 1.0:
            raise ValueError(f"width must be above 0 and below 1, not {self.width}")
        if self.clip is not None and not 0.0 < self.clip < float("inf"):
            raise ValueError(f"clip must be a finite number above 0, not {self.clip}")

    @property
    def needs(self) -> Needs:
        """The narrow tail and gradient clipping."""
        return Needs(tail_width=self.width, clip=self.clip)

    def bind(self, anchors: Anchors) -> Callable[[Step], Tensor]:
        """Return the alignment of the network that is trained; RecipeError if it has no tail."""
        check_tail(anchors.model, "FedAlign")

        def penalty(step: Step) -> Tensor:
            distance = self._distance(anchors.model, step)
            value = distance.item()
            # The ratio makes the term as large as the loss; no distance, no direction.
            return distance * (self.mu * step.loss / value if value > TINY else 0.0)

        return penalty

    def _distance(self, model: nn.Module, step: Step) -> Tensor:
        """Return the batch mean of (s_slim − s_whole)², s the top singular values."""
        before, after = (stage.detach() for stage in step.outputs.stages[-2:])
        narrow = before[:, : slim_channels(before.shape[1], self.width)]
        slim = run_tail(model, narrow, self.width)
        whole = top_singular_value(transmitting_matrix(before, after))
        return (top_singular_value(transmitting_matrix(narrow, slim)) - whole).square().mean()


def transmitting_matrix(before: Tensor, after: Tensor) -> Tensor:
    """Return, per sample, the products of channels before and after a stage, averaged over places.

    Both are feature maps (N, C, H, W); the larger `before` is first pooled to the size of `after`.
    """
    if before.shape[2:] != after.shape[2:]:
        before = F.adaptive_avg_pool2d(before, (after.shape[2], after.shape[3]))
    first, second = before.flatten(2), after.flatten(2)
    return first @ second.transpose(1, 2) / first.shape[2]


def top_singular_value(matrix: Tensor) -> Tensor:
    """Return about the largest singular value of each matrix (N, R, C), by power iteration."""
    square = matrix @ matrix.transpose(1, 2)
    vector = matrix.new_ones(square.shape[0], square.shape[1], 1)
    norm = vector.new_ones(len(vector))
    for _ in range(ITERATIONS):
        product = square @ vector
        # Features that are all dead would divide zero by zero.
        norm = product.norm(dim=(1, 2)).clamp(min=TINY)
        vector = product / norm[:, None, None]
    return torch.sqrt(norm)
