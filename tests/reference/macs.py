"""Multiply-accumulate operations of one forward pass, counted layer by layer with hooks."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def count_macs(network: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Return those of convolutions and linear layers for one image; biases and pooling are free."""
    total = 0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        if isinstance(module, nn.Conv2d):
            total += output.numel() * module.weight[0].numel()
        elif isinstance(module, nn.Linear):
            total += output.numel() * module.in_features

    handles = [module.register_forward_hook(count) for module in network.modules()]
    with torch.inference_mode():
        network.eval()(torch.zeros(1, *image_shape))
    for handle in handles:
        handle.remove()
    return total
