"""The maximum of 2×2 pixels, with torch's values and gradients in less time on a CPU.

torch's own kernel for images in the usual memory format compares one pixel after another. That is a
quarter of a training step of the small networks. Whole rows are compared at once here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

LEAST = 2**15
"""In training, fewer numbers are left to torch: the calls would take longer than the work."""


def max_pool(images: Tensor) -> Tensor:
    """Return the maximum of each 2×2 pixels of (N, channels, height, width).

    An odd last row or column is left out. Values and gradients are those of `F.max_pool2d`, to the
    bit: of equal pixels, the first in the order of rows gets the gradient.
    """
    # Tensors of a type of their own stand for tensors, as in an export.
    plain = type(images) is Tensor and images.device.type == "cpu" and images.is_contiguous()
    if not plain or images.ndim != 4 or min(images.shape[2:]) < 2:
        return F.max_pool2d(images, kernel_size=2)
    if not (images.requires_grad and torch.is_grad_enabled()):
        return torch.maximum(*_columns(torch.maximum(*_rows(images))))
    if images.numel() < LEAST:
        return F.max_pool2d(images, kernel_size=2)
    pooled: Tensor = _MaxPool.apply(images)
    return pooled


def _rows(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the upper and the lower rows of all pairs."""
    height, width = (size // 2 * 2 for size in images.shape[2:])
    return images[..., 0:height:2, :width], images[..., 1:height:2, :width]


def _columns(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the left and the right columns of all pairs."""
    return rows[..., 0::2], rows[..., 1::2]


class _MaxPool(torch.autograd.Function):
    """The maximum, which remembers where it was as torch's kernel does."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        upper, lower = _rows(images)
        is_lower = lower > upper
        left, right = _columns(torch.maximum(upper, lower))
        left_lower, right_lower = _columns(is_lower)
        # At equal maxima the upper one comes first, and then the left one.
        is_right = (right > left) | ((right == left) & (left_lower > right_lower))
        is_lower = (is_right & right_lower) | (~is_right & left_lower)
        places = torch.add(_corners(*images.shape[2:]), is_lower, alpha=images.shape[3])
        ctx.save_for_backward(images, places.add_(is_right))
        return torch.maximum(left, right)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        images, places = ctx.saved_tensors
        gradient: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
            gradients[0], images, [2, 2], [2, 2], [0, 0], [1, 1], False, places
        )
        return gradient


@cache
def _corners(height: int, width: int) -> Tensor:
    """Return the number of the upper left pixel of each square, counted by rows."""
    rows = torch.arange(0, height // 2 * 2, 2)[:, None]
    return rows * width + torch.arange(0, width // 2 * 2, 2)
