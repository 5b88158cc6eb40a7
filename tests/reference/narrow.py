"""Narrow layers built for themselves, with the leading numbers of a wide one copied in."""

from __future__ import annotations

import torch
from torch import nn


def narrowed(layer: nn.Module, inputs: int, outputs: int) -> nn.Module:
    """Return a convolution or a normalization of its own, with this number of channels."""
    if isinstance(layer, nn.Conv2d):
        return _convolution(layer, inputs, outputs)
    assert isinstance(layer, nn.BatchNorm2d)
    narrow = nn.BatchNorm2d(outputs, eps=layer.eps, track_running_stats=False)
    _fill(narrow.weight, layer.weight)
    _fill(narrow.bias, layer.bias)
    return narrow.to(layer.weight.dtype)


def _convolution(layer: nn.Conv2d, inputs: int, outputs: int) -> nn.Conv2d:
    groups = outputs if layer.groups > 1 else 1
    has_bias = layer.bias is not None
    narrow = nn.Conv2d(
        inputs,
        outputs,
        layer.kernel_size,
        layer.stride,
        layer.padding,
        groups=groups,
        bias=has_bias,
    )
    for name, parameter in narrow.named_parameters():
        _fill(parameter, layer.get_parameter(name))
    return narrow.to(layer.weight.dtype)


def _fill(narrow: nn.Parameter, wide: nn.Parameter) -> None:
    """Copy number by number from the same place of the wider one."""
    narrow.data = torch.zeros_like(narrow, dtype=wide.dtype)
    for place in torch.cartesian_prod(*(torch.arange(size) for size in narrow.shape)).tolist():
        where = tuple(place) if isinstance(place, list) else place
        narrow.data[where] = wide.data[where]
